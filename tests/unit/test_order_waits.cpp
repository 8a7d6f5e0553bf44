// What the application does to the timeline: its own waits, captures, streams it destroys; and what of ours
// waits on the host.
#include <atomic>
#include <optional>
#include <thread>

#include "order_world.hpp"
#include "other_thread.hpp"

using namespace cupool;
using namespace cupool::test;
using order::Epoch;
using order::Lane;

// ---- The program's own waits.

TEST_CASE_METHOD(OrderWorld, "the program's own wait for its context proves all that was freed before it") {
  app.work(kS);
  app.work(kT);
  const Epoch stamp = app.free();
  app.wait(Lane::kMany, true);
  CHECK(time.completed() == stamp);
  CHECK(time.is_idle());
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(OrderWorld, "a wait for the one lane in use proves as much as one for the context") {
  const Epoch sealed = app.use_and_free(kS);
  app.work(kS);
  const Epoch stamp = app.free();
  app.wait(kS, true);
  CHECK(time.completed() == stamp);
  CHECK(stamp > sealed);
  CHECK(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "a wait for one lane of several, noted or sealed, proves nothing") {
  SECTION("noted") { app.work(kT); }
  SECTION("sealed") { app.use_and_free(kT); }
  app.work(kS);
  const Epoch before = time.completed();
  CHECK(time.begin_wait(kS) == 0);
  app.wait(kS, true);
  CHECK(time.completed() == before);
}

TEST_CASE_METHOD(OrderWorld, "a wait for a lane that is not in use proves nothing") {
  app.work(kS);
  CHECK(time.begin_wait(kT) == 0);
}

TEST_CASE_METHOD(OrderWorld, "what is submitted and freed while the program waits is not covered") {
  app.work(kS);
  const Epoch wait = time.begin_wait(Lane::kMany);
  app.work(kT);
  const Epoch stamp = app.free();
  time.end_wait(wait, true);
  CHECK(time.completed() < stamp);
  CHECK_FALSE(time.is_idle());
  // Its lane counts.
  REQUIRE(app.hand_out(app.free_and_seal()));
  app.work(kS);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "a wait that failed proves nothing, and its lanes are noted again") {
  app.work(kT);
  const Epoch stamp = app.free();
  app.wait(Lane::kMany, false);
  CHECK(time.completed() < stamp);
  CHECK_FALSE(time.is_idle());
  CHECK_FALSE(app.hand_out(stamp));
  // With the lane of the next submission they are two.
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  app.work(kS);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "the lanes of a wait that failed pass to the seal that was made meanwhile") {
  app.work(kT);
  const Epoch wait = time.begin_wait(Lane::kMany);
  const Epoch stamp = app.use_and_free(kS);
  time.end_wait(wait, false);
  REQUIRE(app.hand_out(stamp));
  app.work(kS);
  CHECK(driver.waits == 1);
  // And go with it: they are not noted again.
  app.wait(kS, true);
  CHECK(time.completed() < stamp);
  driver.finish();
  time.advance();
  CHECK(time.completed() >= stamp);
  app.wait(kS, true);
  CHECK(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "waits of several threads may end in any order") {
  app.work(kS);
  const Epoch first = time.begin_wait(Lane::kMany);
  const Epoch second = time.begin_wait(Lane::kMany);
  const Epoch third = time.begin_wait(Lane::kMany);
  CHECK(first < second);
  time.end_wait(second, true);
  CHECK(time.completed() == second);
  time.end_wait(first, false);
  CHECK(time.completed() == second);
  time.end_wait(third, false);
  CHECK(time.completed() == second);
  CHECK(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "a seal that is done proves what a wait still under way was to prove") {
  app.work(kS);
  const Epoch wait = time.begin_wait(Lane::kMany);
  app.use_and_free(kS);
  app.finish();
  CHECK(time.completed() >= wait);
  time.end_wait(wait, false);
  CHECK(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "streams are not made to wait for a wait of the program") {
  app.work(kS);
  const Epoch wait = time.begin_wait(Lane::kMany);
  CHECK_FALSE(app.hand_out(wait));
  time.end_wait(wait, true);
  CHECK(app.hand_out(wait));
  app.work(kT);
  CHECK(driver.waits == 0);
}

// ---- Waits of ours on the host.

TEST_CASE_METHOD(OrderWorld,
                 "waiting for all work makes what was freed completed, and fails with the driver") {
  app.work(kS);
  app.work(kT);
  const Epoch stamp = app.free();
  driver.fail_synchronize = driver::kInvalidContext;
  CHECK_FALSE(time.wait_for_all());
  CHECK(time.refusal() == driver::kInvalidContext);
  CHECK(time.completed() < stamp);
  CHECK_FALSE(time.is_idle());
  driver.fail_synchronize = driver::kSuccess;
  CHECK(time.wait_for_all());
  CHECK(time.completed() >= stamp);
  CHECK(driver.synchronised == std::vector{kFirst});
}

TEST_CASE_METHOD(OrderWorld, "waiting for all work proves it however many seals are under way") {
  for (int i = 0; i < 300; ++i) app.use_and_free(kS);
  app.work(kT);
  const Epoch stamp = app.free();
  CHECK(time.wait_for_all());
  CHECK(time.completed() >= stamp);
  CHECK(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "waiting for a seal ends with its work, and leaves later work alone") {
  const Epoch first = app.use_and_free(kS);
  const Epoch second = app.use_and_free(kS);
  driver.on_query = [&, asked = 0]() mutable {
    if (++asked == 3) driver.finish_oldest();
  };
  CHECK(time.wait_for(first));
  CHECK(time.completed() == first);
  CHECK(second > first);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(OrderWorld, "what was never sealed in a free is not waited for") {
  app.work(kS);
  const Epoch stamp = app.free();
  finish_after(driver, 50);
  CHECK_FALSE(time.wait_for(stamp));
  app.free_in_order();
  CHECK_FALSE(time.wait_for(stamp));
  CHECK(driver.queries < 50);
}

TEST_CASE_METHOD(OrderWorld, "memory leaves the order of streams when the work it leaned on is over") {
  CHECK(time.wait_for_leant());
  const Epoch stamp = app.use_and_free(kS);
  // Nobody has it yet.
  CHECK(time.wait_for_leant());
  CHECK(driver.queries == 0);
  REQUIRE(app.hand_out(stamp));
  finish_after(driver, 5);
  CHECK(time.wait_for_leant());
  CHECK(time.completed() >= stamp);
  CHECK(driver.queries == 5);
  CHECK(time.wait_for_leant());
  CHECK(driver.queries == 5);
}

TEST_CASE_METHOD(OrderWorld,
                 "what was handed out behind a context's wait leaves when its work is over, too") {
  time.expect_untracked_work();
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(time.reach());
  REQUIRE(app.hand_out(stamp));
  REQUIRE(time.completed() < stamp);
  finish_after(driver, 5);
  CHECK(time.wait_for_leant());
  CHECK(time.completed() >= stamp);
}

// ---- Captures.

TEST_CASE_METHOD(OrderWorld, "while a stream captures we record, ask and wait for nothing") {
  const Epoch sealed = app.use_and_free(kS);
  app.work(kT);
  gate.begin_capture();
  const uint64_t before = driver.calls();
  const Epoch stamp = app.free_and_seal();
  app.free_in_order();
  time.advance();
  CHECK_FALSE(time.wait_for(sealed));
  CHECK_FALSE(time.wait_for_all());
  CHECK(time.begin_wait(Lane::kMany) == 0);
  time.destroy_stream(kS);
  CHECK(driver.calls() == before);
  CHECK_FALSE(app.hand_out(stamp));
  gate.end_capture();
  app.free_and_seal();
  CHECK(driver.records == 2);
  CHECK(app.hand_out(stamp));
}

TEST_CASE_METHOD(OrderWorld, "what was sealed before a capture is handed out during it") {
  const Epoch stamp = app.use_and_free(kS);
  gate.begin_capture();
  REQUIRE(app.hand_out(stamp));
  // A stream that does not capture waits as ever.
  app.work(kT);
  CHECK(driver.waits == 1);
  CHECK(driver.queries == 0);
}

TEST_CASE_METHOD(OrderWorld, "a stream that captures is not made to wait, the same stream later is") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  gate.begin_capture();
  driver.captures = true;
  CHECK(time.before_submit(kT, stream_of(kT)));
  CHECK(driver.waits == 0);
  driver.captures = false;
  gate.end_capture();
  app.work(kT);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "calls come back with the end of the last capture") {
  app.work(kS);
  gate.begin_capture();
  gate.begin_capture();
  gate.end_capture();
  app.free_and_seal();
  CHECK(driver.records == 0);
  gate.end_capture();
  app.free_and_seal();
  CHECK(driver.records == 1);
  gate.end_capture();
  CHECK_FALSE(time.is_capturing());
}

TEST_CASE_METHOD(
    OrderWorld,
    "a capture does not begin while a call about its context is under way, and none while one runs") {
  REQUIRE(gate.enter(kFirst));
  std::atomic<bool> ended{false};
  std::atomic<bool> was_early{false};
  OtherThread capture([&] {
    gate.begin_capture(kFirst);
    was_early = !ended;
  });
  CHECK(capture.stands());
  // From here on no call of ours begins, though the capture still waits for the first.
  CHECK_FALSE(gate.enter(kFirst));
  CHECK(capture.stands());
  ended = true;
  gate.leave(kFirst);
  capture.join();
  CHECK_FALSE(was_early);
  CHECK(gate.is_capturing());
  CHECK_FALSE(gate.enter(kFirst));
  gate.end_capture();
  CHECK(gate.enter(kFirst));
}

TEST_CASE_METHOD(OrderWorld, "a call for a context that has ended holds off no capture of another one") {
  REQUIRE(gate.enter(nullptr));
  REQUIRE(gate.enter(kFirst));
  gate.leave(kFirst);
  gate.leave(nullptr);
  // Were the two counted in one place, this would not end.
  gate.begin_capture(kFirst);
  CHECK(gate.is_capturing());
}

TEST_CASE_METHOD(OrderWorld, "every call of ours about a context holds off a capture that it would break") {
  std::optional<OtherThread> capture;
  const auto begin = [&] {
    if (capture) return;
    capture.emplace([&] { gate.begin_capture(kFirst); });
    CHECK(capture->stands());
  };
  app.work(kS);
  SECTION("a record") {
    driver.on_record = begin;
    app.free_and_seal();
  }
  SECTION("a wait") {
    time.expect_untracked_work();
    app.free_and_seal();
    driver.on_wait = begin;
    REQUIRE(time.reach());
  }
  SECTION("a synchronisation") {
    driver.on_synchronize = begin;
    REQUIRE(time.wait_for_all());
  }
  REQUIRE(capture);
  capture->join();
  CHECK(gate.is_capturing());
}

TEST_CASE("a capture that begins while a submission waits for the device does not get it refused") {
  struct OldDriver final : FakeDriver {
    bool has_context_events() const override { return false; }
    driver::Status synchronize(driver::Context) override { return driver::kSuccess; }
  } driver;
  order::CaptureGate gate;
  order::Contexts contexts;
  order::Timeline time{driver, gate, contexts};
  contexts.add(kFirst);
  time.begin(kFirst);
  std::atomic<int> refused{0}, running{2};
  const auto submit = [&](Lane lane) {
    for (int i = 0; i < 5000; ++i) {
      if (!time.before_submit(lane, stream_of(lane))) ++refused;
      time.after_submit(lane);
      if (time.open() <= time.reachable()) time.lean_on(0, kSomeBlock);
      std::this_thread::yield();
      if (i % 4 == 0) time.seal_in_free();
    }
    --running;
  };
  std::thread first(submit, kS), second(submit, kT);
  while (running != 0) {
    gate.begin_capture();
    for (int i = 0; i < 4; ++i) std::this_thread::yield();
    gate.end_capture();
    std::this_thread::yield();
  }
  first.join();
  second.join();
  CHECK(refused == 0);
}

// ---- Streams destroyed.

TEST_CASE_METHOD(OrderWorld, "destroying a stream makes no driver call, whatever it was used for") {
  app.work(kS);
  app.use_and_free(kT);
  REQUIRE(app.hand_out(app.use_and_free(kU)));
  app.work(kU);
  app.work(kS);
  const uint64_t before = driver.calls();
  time.destroy_stream(kS);
  time.destroy_stream(kT);
  time.destroy_stream(kU);
  CHECK(driver.calls() == before);
}

TEST_CASE_METHOD(OrderWorld, "a stream that gets a destroyed one's handle waits for the old one's work") {
  SECTION("sealed before it was destroyed") {
    REQUIRE(app.hand_out(app.use_and_free(kS)));
    time.destroy_stream(kS);
  }
  SECTION("noted when it was destroyed") {
    app.work(kS);
    time.destroy_stream(kS);
    REQUIRE(app.hand_out(app.free_and_seal()));
  }
  SECTION("sealed between older and newer work of the same stream") {
    app.use_and_free(kS);
    time.destroy_stream(kS);
    REQUIRE(app.hand_out(app.use_and_free(kS)));
  }
  app.work(kS);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "a stream that gets a destroyed one's handle has not waited for anything") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  app.work(kT);
  CHECK(driver.waits == 1);
  time.destroy_stream(kT);
  app.work(kT);
  CHECK(driver.waits == 2);
}

TEST_CASE_METHOD(OrderWorld, "a wait for a stream says nothing of a destroyed one that had its handle") {
  app.work(kS);
  time.destroy_stream(kS);
  CHECK(time.begin_wait(kS) == 0);
  app.wait(Lane::kMany, true);
  app.work(kS);
  CHECK(time.begin_wait(kS) != 0);
}

TEST_CASE_METHOD(OrderWorld, "destroying one stream leaves the lanes of the others as they were") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  time.destroy_stream(kT);
  app.work(kS);
  CHECK(driver.waits == 0);
  app.wait(kS, true);
  CHECK(time.is_idle());
}

TEST_CASE("streams of many threads do not push each other's waits out") {
  order::WaitedLanes waited;
  constexpr uint64_t kStreams = 32;
  constexpr uint64_t kApart = 0x2e0;  // as a driver's records lie
  const auto lane_at = [](uint64_t i) { return order::lane_of_handle(0x5566'7788'1000 + i * kApart); };
  for (uint64_t i = 0; i < kStreams; ++i) waited.set(lane_at(i), 7, 0);
  uint64_t found = 0;
  for (uint64_t i = 0; i < kStreams; ++i) found += waited.has(lane_at(i), 7, 0) ? 1 : 0;
  CHECK(found >= kStreams - 2);
  waited.drop(lane_at(0));
  CHECK_FALSE(waited.has(lane_at(0), 7, 0));
}

// ---- A wait on the device that takes long: the driver lets it stand where another thread's launch stands.

namespace {

// Calls a step in the middle of the next wait of a stream or a context, not in those that it makes itself.
void in_next_wait(OrderDriver& driver, const std::function<void()>& step) {
  driver.on_wait = [&driver, step] {
    const std::function<void()> kept = step;
    driver.on_wait = [] {};
    kept();
  };
}

struct DeviceWait : OrderWorld {
  // A block whose work is sealed and not done, handed out to whoever comes first.
  void lean_on_work_of(Lane lane) {
    app.work(kU);
    REQUIRE(app.hand_out(app.use_and_free(lane)));
  }
};

}  // namespace

TEST_CASE_METHOD(DeviceWait, "while a stream is made to wait, frees of other threads seal") {
  lean_on_work_of(kS);
  const size_t before = driver.made.size();
  in_next_wait(driver, [&] {
    // It would give up if the lock were held.
    app.free_and_seal();
    CHECK(time.limit(order::Reach::kAll) == time.open() - 1);
  });
  app.work(kT);
  CHECK(driver.stream_waits.size() == 1);
  app.use_and_free(kT);
  CHECK(driver.made.size() == before + 1);
}

TEST_CASE_METHOD(DeviceWait, "while a stream is made to wait, another one can be, too") {
  lean_on_work_of(kS);
  bool is_made = false;
  in_next_wait(driver, [&] {
    std::thread([&] { app.work(kU); }).join();
    is_made = true;
  });
  app.work(kT);
  CHECK(is_made);
  CHECK(driver.stream_waits.size() == 2);
}

TEST_CASE_METHOD(DeviceWait, "while a context is made to wait, frees of other threads seal") {
  time.expect_untracked_work();
  const Epoch stamp = app.use_and_free(kS);
  in_next_wait(driver, [&] {
    app.work(kS);
    app.free_and_seal();
  });
  CHECK(time.reach());
  CHECK(app.hand_out(stamp));
  CHECK(driver.made.size() == 2);
}

TEST_CASE_METHOD(DeviceWait, "an event that a stream is about to wait for is not recorded anew") {
  lean_on_work_of(kS);
  const size_t record = driver.made.size() - 1;
  in_next_wait(driver, [&] {
    app.finish();
    app.use_and_free(kU);
    app.use_and_free(kS);
  });
  app.work(kT);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == record);
}

TEST_CASE_METHOD(DeviceWait,
                 "an event that several streams are about to wait for serves again after the last") {
  lean_on_work_of(kS);
  const driver::Event event = driver.made.back().event;
  in_next_wait(driver, [&] {
    app.work(kS);
    app.finish();
    app.use_and_free(kU);
    CHECK(driver.made.back().event != event);
  });
  app.work(kT);
  app.finish();
  bool serves = false;
  for (int i = 0; i < 4; ++i) {
    app.use_and_free(kU);
    serves = serves || driver.made.back().event == event;
  }
  CHECK(serves);
}

TEST_CASE_METHOD(DeviceWait, "events of more waits than there is room for serve once") {
  // Each wait is made in the middle of the one before it, for an event of its own.
  constexpr size_t kDeep = 100;
  std::vector<size_t> expected;
  std::function<void()> deeper = [&] {
    if (expected.size() == kDeep) {
      app.finish();
      for (size_t i = 0; i < kDeep + 4; ++i) app.use_and_free(i % 2 == 0 ? kU : kS);
      return;
    }
    lean_on_work_of(kS);
    expected.push_back(driver.made.size() - 1);
    in_next_wait(driver, deeper);
    app.work(Lane{0x10000 + 0x100 * expected.size()});
  };
  deeper();
  // The innermost is made first.
  REQUIRE(driver.stream_waits.size() >= kDeep);
  for (size_t i = 0; i < kDeep; ++i)
    CHECK(driver.stream_waits[driver.stream_waits.size() - 1 - i].record == expected[i]);
}

TEST_CASE_METHOD(DeviceWait, "a context that ends while a stream is made to wait takes its events along") {
  lean_on_work_of(kS);
  in_next_wait(driver, [&] {
    time.end();
    time.begin(kSecond);
  });
  CHECK(time.before_submit(kT, stream_of(kT)));
  lean_on_work_of(kS);
  const size_t waits = driver.stream_waits.size();
  app.work(kT);
  CHECK(driver.stream_waits.size() == waits + 1);
}

TEST_CASE_METHOD(DeviceWait, "what is ordered while exact reuse begins is not handed out before it is done") {
  time.expect_untracked_work();
  const Epoch stamp = app.use_and_free(kS);
  in_next_wait(driver, [&] { time.use_completed_only(); });
  time.reach();
  CHECK_FALSE(app.hand_out(stamp));
  app.finish();
  CHECK(app.hand_out(stamp));
}

TEST_CASE_METHOD(DeviceWait, "what only tells when work is done makes no event") {
  app.work(kS);
  time.seal_for_completion();
  time.expect_completion();
  CHECK(driver.events_made() == 0);
}

TEST_CASE_METHOD(DeviceWait, "a free that needs an event makes it without the lock") {
  app.work(kS);
  bool is_asked = false;
  driver.on_create_event = [&] {
    time.newest_leant_on();  // under the lock: with it held, this test would not end
    is_asked = true;
  };
  time.seal_in_free(true);
  CHECK(is_asked);
  CHECK(driver.records == 1);
}

TEST_CASE_METHOD(DeviceWait, "an event kept ahead serves a stream-ordered free") {
  app.work(kS);
  time.keep_events();
  const uint64_t made = driver.events_made();
  time.seal_for_completion();
  CHECK(driver.records == 1);
  CHECK(driver.events_made() == made);
}
