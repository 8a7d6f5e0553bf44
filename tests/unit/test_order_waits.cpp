// What the application does to the timeline: its own waits, captures, streams it destroys, contexts that come
// and go, and what makes us stop trusting lanes.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "fake_driver.hpp"
#include "order/timeline.hpp"

using namespace cupool;
using order::Epoch;
using order::Lane;

namespace {

constexpr Lane kS{0x1000}, kT{0x2000}, kU{0x3000};
const auto kFirst = reinterpret_cast<driver::Context>(0x10);
const auto kSecond = reinterpret_cast<driver::Context>(0x20);

struct World {
  test::FakeDriver driver;
  order::Timeline time{&driver};

  World() {
    driver.done_at_once = false;
    time.join(kFirst);
  }
  void work(Lane lane) {
    CHECK(time.before_submit(lane));
    time.after_submit(lane);
  }
  void wait(Lane lane, bool succeeded) { time.end_wait(time.begin_wait(lane), succeeded); }
};

}  // namespace

// ---- Waits.

TEST_CASE_METHOD(World, "the program's own wait for its context proves all that was freed before it") {
  work(kS);
  work(kT);
  const Epoch stamp = time.open();
  wait(Lane::kMany, true);
  CHECK(time.is_completed(stamp));
  CHECK(time.is_granted());
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(World, "a wait that failed proves nothing, and its lanes count on") {
  work(kS);
  const Epoch stamp = time.open();
  wait(Lane::kMany, false);
  CHECK_FALSE(time.is_safe(stamp));
  work(kT);
  CHECK_FALSE(time.request_grant());
}

TEST_CASE_METHOD(World, "a wait for the one lane in use proves as much as one for the context") {
  work(kS);
  const Epoch stamp = time.open();
  wait(kS, true);
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "a wait for one lane of several proves nothing") {
  work(kS);
  work(kT);
  const Epoch stamp = time.open();
  CHECK(time.begin_wait(kS) == 0);
  wait(kS, true);
  CHECK_FALSE(time.is_safe(stamp));
}

TEST_CASE_METHOD(World, "a wait for a lane that is not in use proves nothing") {
  work(kS);
  CHECK(time.begin_wait(kT) == 0);
}

TEST_CASE_METHOD(World, "what is submitted and freed while the program waits is not covered") {
  work(kS);
  const Epoch wait = time.begin_wait(Lane::kMany);
  work(kT);
  const Epoch stamp = time.open();
  time.end_wait(wait, true);
  CHECK_FALSE(time.is_safe(stamp));
  // Its lane counts: with another one there are many.
  work(kU);
  CHECK_FALSE(time.request_grant());
}

TEST_CASE_METHOD(World, "waits of several threads may end in any order") {
  work(kS);
  const Epoch first = time.begin_wait(Lane::kMany);
  const Epoch second = time.begin_wait(Lane::kMany);
  const Epoch third = time.begin_wait(Lane::kMany);
  CHECK(first < second);
  time.end_wait(second, true);
  CHECK(time.is_completed(second));
  CHECK_FALSE(time.is_completed(third));
  time.end_wait(first, false);
  CHECK(time.is_completed(second));
  time.end_wait(third, false);
  CHECK_FALSE(time.is_completed(third));
  CHECK(time.request_grant());
}

TEST_CASE_METHOD(World, "a wait for one lane does not prove that lanes before a barrier are done") {
  // A submission to S was under way while T, still running, was put behind a barrier: S says nothing of T.
  work(kT);
  const Epoch stamp = time.open();
  REQUIRE(time.barrier());
  time.after_submit(kS);
  wait(kS, true);
  CHECK_FALSE(time.is_completed(stamp));
  driver.finish();
  time.advance(false);
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "waiting for all work makes what was freed completed, and fails with the driver") {
  work(kS);
  work(kT);
  const Epoch stamp = time.open();
  driver.fail_synchronize = driver::kNotSupported;
  CHECK_FALSE(time.wait_for_all());
  CHECK_FALSE(time.is_safe(stamp));
  driver.fail_synchronize = driver::kSuccess;
  CHECK(time.wait_for_all());
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "waiting for all work proves it however many seals are still running") {
  for (int i = 0; i < 300; ++i) time.advance(true);
  work(kS);
  const Epoch stamp = time.open();
  CHECK(time.wait_for_all());
  CHECK(time.is_completed(stamp));
}

// ---- Captures.

TEST_CASE_METHOD(World, "while a stream captures we make no call and grant nothing") {
  work(kS);
  time.begin_capture();
  const Epoch stamp = time.open();
  time.advance(true);
  CHECK_FALSE(time.is_granted());
  CHECK_FALSE(time.request_grant());
  CHECK_FALSE(time.barrier());
  CHECK_FALSE(time.wait_for_all());
  CHECK(time.begin_wait(Lane::kMany) == 0);
  work(kT);
  time.destroy_stream(kS);
  CHECK(driver.calls() == 0);
  CHECK_FALSE(time.is_safe(stamp));
}

TEST_CASE_METHOD(World, "a guard is ordered before a capture begins, for none can be during it") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  time.begin_capture();
  CHECK(driver.orders == 1);
  CHECK(time.is_safe(stamp));
  work(kT);
  CHECK(driver.orders == 1);
}

TEST_CASE("a capture that begins while a submission waits for the device does not get it refused") {
  struct OldDriver final : test::FakeDriver {
    bool has_context_events() const override { return false; }
    driver::Status synchronize(driver::Context) override { return driver::kSuccess; }
  } driver;
  order::Timeline time{&driver};
  time.join(kFirst);
  std::atomic<int> refused{0}, running{2};
  const auto submit = [&](Lane lane) {
    for (int i = 0; i < 5000; ++i) {
      if (!time.before_submit(lane)) ++refused;
      time.after_submit(lane);
      time.request_grant();
      std::this_thread::yield();
      if (i % 4 == 0) time.wait_for_all();
    }
    --running;
  };
  std::thread first(submit, kS), second(submit, kT);
  while (running != 0) {
    time.begin_capture();
    for (int i = 0; i < 4; ++i) std::this_thread::yield();
    time.end_capture();
    std::this_thread::yield();
  }
  first.join();
  second.join();
  CHECK(refused == 0);
}

TEST_CASE_METHOD(World, "memory that was safe before a capture can still be handed out during it") {
  const Epoch stamp = time.open();
  REQUIRE(time.barrier());
  time.begin_capture();
  CHECK(time.is_safe(stamp));
}

TEST_CASE_METHOD(World, "grants come back with the end of the last capture") {
  work(kS);
  time.begin_capture();
  time.begin_capture();
  time.end_capture();
  CHECK_FALSE(time.request_grant());
  time.end_capture();
  CHECK(time.request_grant());
  time.end_capture();
  CHECK_FALSE(time.is_capturing());
}

TEST_CASE_METHOD(World,
                 "a capture does not begin while a call of ours is under way, and no call while one runs") {
  REQUIRE(time.begin_call());
  std::atomic<bool> ended{false};
  std::thread capture([&] {
    time.begin_capture();
    CHECK(ended);
  });
  std::this_thread::yield();
  CHECK_FALSE(time.is_capturing());
  ended = true;
  time.end_call();
  capture.join();
  CHECK(time.is_capturing());
  CHECK_FALSE(time.begin_call());
  time.end_capture();
  CHECK(time.begin_call());
}

// ---- Streams destroyed.

TEST_CASE_METHOD(World, "destroying a stream in use makes a barrier, for its handle can come back") {
  work(kS);
  const Epoch stamp = time.open();
  time.destroy_stream(kS);
  CHECK(driver.orders == 1);
  CHECK(time.is_safe(stamp));
}

TEST_CASE_METHOD(World, "destroying one of many lanes makes a barrier") {
  work(kS);
  work(kT);
  time.destroy_stream(kT);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "destroying a stream whose work a running seal covers makes a barrier") {
  work(kS);
  time.advance(true);
  time.destroy_stream(kS);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "destroying a guarded stream makes a barrier even if its work is over") {
  work(kS);
  time.advance(true);
  REQUIRE(time.request_grant());
  driver.finish();
  time.advance(false);
  time.destroy_stream(kS);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "destroying a stream that is not in use costs nothing") {
  work(kS);
  time.destroy_stream(kT);
  wait(Lane::kMany, true);
  time.destroy_stream(kS);
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(World, "when a destroyed stream cannot be ordered, its handle means nothing any more") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  driver.fail_record = driver.fail_synchronize = driver::kNotSupported;
  time.destroy_stream(kS);
  CHECK_FALSE(time.request_grant());
  driver.fail_record = driver.fail_synchronize = driver::kSuccess;
  CHECK(time.before_submit(kS));
  CHECK(time.is_safe(stamp));
}

// ---- Contexts.

TEST_CASE_METHOD(World, "with a second context nothing is granted, and fences cover both") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  time.join(kSecond);
  // What leans on the guard is ordered in both contexts at once.
  CHECK(driver.records == 2);
  CHECK(driver.orders == 4);
  CHECK(time.is_safe(stamp));
  CHECK_FALSE(time.is_granted());
  CHECK_FALSE(time.request_grant());
  CHECK(time.begin_wait(Lane::kMany) == 0);
}

TEST_CASE_METHOD(World, "a seal over two contexts is done when both of its events are") {
  time.join(kSecond);
  const Epoch stamp = time.open();
  time.advance(true);
  driver.finish_oldest();
  time.advance(false);
  CHECK_FALSE(time.is_completed(stamp));
  driver.finish_oldest();
  time.advance(false);
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "joining twice is joining once") {
  time.join(kFirst);
  CHECK(time.contexts() == 1);
}

TEST_CASE_METHOD(World, "a context that leaves is asked nothing any more, and lanes come back") {
  time.join(kSecond);
  work(kS);
  time.advance(true);
  REQUIRE(driver.records == 2);
  time.leave(kSecond);
  CHECK(time.contexts() == 1);
  const uint64_t before = driver.queries;
  driver.finish();
  time.advance(false);
  // The mark that is left, and the seal that advance() makes when none is under way.
  CHECK(driver.queries == before + 2);
  CHECK(time.request_grant());
}

TEST_CASE_METHOD(World, "waiting for all work waits in every context") {
  time.join(kSecond);
  const Epoch stamp = time.open();
  CHECK(time.wait_for_all());
  CHECK(driver.synchronisations == 2);
  CHECK(time.is_completed(stamp));
}

// ---- Doubt.

TEST_CASE_METHOD(World, "doubt ends lanes for good and orders what leaned on them, and fences stay") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  time.distrust("a test");
  time.distrust("another");
  CHECK(std::strcmp(time.distrusted_because(), "a test") == 0);
  CHECK(driver.orders == 1);
  CHECK(time.is_safe(stamp));
  wait(Lane::kMany, true);
  CHECK_FALSE(time.is_granted());
  CHECK_FALSE(time.request_grant());
  const Epoch later = time.open();
  CHECK(time.barrier());
  CHECK(time.is_safe(later));
}

TEST_CASE_METHOD(World, "where other devices may write, nothing is safe before its work is over") {
  work(kS);
  REQUIRE(time.barrier());
  const Epoch early = time.open() - 1;
  REQUIRE(time.is_safe(early));
  time.use_completed_only("a test");
  CHECK_FALSE(time.is_safe(early));
  work(kS);
  const Epoch stamp = time.open();
  CHECK_FALSE(time.request_grant());
  // A barrier orders nothing for them: it has to wait.
  CHECK(time.barrier());
  CHECK(driver.synchronisations == 1);
  CHECK(time.is_completed(stamp));
  CHECK(time.is_safe(stamp));
}

TEST_CASE_METHOD(World, "a forked child knows of no context, no work and no capture") {
  work(kS);
  REQUIRE(time.request_grant());
  time.advance(true);
  time.begin_capture();
  time.forget_after_fork();
  const uint64_t before = driver.calls();
  CHECK_FALSE(time.is_capturing());
  CHECK(time.contexts() == 0);
  time.advance(true);
  work(kT);
  CHECK(driver.calls() == before);
}
