// The rules of the timeline one by one, on a driver whose events are done when the test says so: when memory
// is granted, what a submission to another lane costs, what a seal and a barrier prove, and what happens when
// the driver refuses.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "fake_driver.hpp"
#include "order/timeline.hpp"

using namespace cupool;
using order::Epoch;
using order::Lane;

namespace {

constexpr Lane kS{0x1000}, kT{0x2000}, kU{0x3000};

struct World {
  test::FakeDriver driver;
  order::Timeline time{&driver};

  World() {
    driver.done_at_once = false;
    time.join(reinterpret_cast<driver::Context>(0x10));
  }
  void work(Lane lane) {
    CHECK(time.before_submit(lane));
    time.after_submit(lane);
  }
  // A submission that another thread began before all that follows, and which ends now.
  void work_begun_earlier(Lane lane) { time.after_submit(lane); }
};

}  // namespace

TEST_CASE("lanes are told apart by stream, and a set of them is none, one or many") {
  CHECK(order::lane_of_handle(0) == order::lane_of_handle(1));
  CHECK(order::lane_of_handle(0) == Lane::kLegacy);
  CHECK(order::lane_of_handle(0x1000) != order::lane_of_handle(0x1008));
  CHECK(order::lane_of_thread(1) != order::lane_of_thread(2));
  CHECK(order::unite(Lane::kNone, kS) == kS);
  CHECK(order::unite(kS, Lane::kNone) == kS);
  CHECK(order::unite(kS, kS) == kS);
  CHECK(order::unite(kS, kT) == Lane::kMany);
  CHECK(order::unite(Lane::kMany, kS) == Lane::kMany);
}

TEST_CASE_METHOD(World, "where nothing was submitted, freed memory is granted without a driver call") {
  CHECK(time.request_grant());
  CHECK(time.is_granted());
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(World, "memory freed now is not safe, whatever is granted") {
  work(kS);
  CHECK_FALSE(time.is_safe(time.open()));
  CHECK_FALSE(time.is_completed(time.open()));
}

TEST_CASE_METHOD(World, "while all work is in one lane, memory is granted and no call is made") {
  work(kS);
  CHECK_FALSE(time.is_granted());
  CHECK(time.request_grant());
  for (int i = 0; i < 100; ++i) {
    work(kS);
    CHECK(time.is_granted());
  }
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(World, "the first submission to another lane after a grant puts a barrier first") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  CHECK(time.before_submit(kT));
  CHECK(driver.records == 1);
  CHECK(driver.orders == 1);
  CHECK(time.is_safe(stamp));
  time.after_submit(kT);
  work(kU);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "without a hand-out, work in another lane costs nothing") {
  work(kS);
  work(kT);
  work(kU);
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(World, "work in two lanes is granted nothing") {
  work(kS);
  work(kT);
  CHECK_FALSE(time.is_granted());
  CHECK_FALSE(time.request_grant());
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(World,
                 "a submission under way when memory was granted takes the grant away when it is noted") {
  work(kS);
  REQUIRE(time.request_grant());
  work_begun_earlier(kT);
  CHECK_FALSE(time.is_granted());
  CHECK_FALSE(time.request_grant());
  // What was handed out meanwhile still has its guard.
  work(kT);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World,
                 "streams that take turns quickly are granted nothing for a while, if the user wants that") {
  const auto orders_of_turns = [&] {
    const size_t before = driver.orders;
    for (int i = 0; i < 1000; ++i) {
      work(i % 2 == 0 ? kS : kT);
      time.request_grant();
    }
    return driver.orders - before;
  };
  const size_t always = orders_of_turns();
  CHECK(always > 900);
  time.hold_grants_for(1'000'000'000);
  CHECK(orders_of_turns() < always / 2);
}

TEST_CASE_METHOD(World, "grants that were held back come again when one lane is left, on an old driver too") {
  driver.context_events = GENERATE(true, false);
  time.hold_grants_for(1'000'000);
  for (int i = 0; i < 20; ++i) {
    work(i % 2 == 0 ? kS : kT);
    time.request_grant();
  }
  REQUIRE(time.wait_for_all());
  work(kS);
  REQUIRE_FALSE(time.request_grant());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  work(kS);
  time.advance(false);
  CHECK(time.request_grant());
}

TEST_CASE_METHOD(World,
                 "a first submission that no guard saw takes back what was granted because nothing ran") {
  REQUIRE(time.request_grant());
  work(kS);
  CHECK_FALSE(time.is_granted());
}

TEST_CASE_METHOD(World, "memory is safe when the seal of its epoch is done, not before") {
  work(kS);
  work(kT);
  const Epoch stamp = time.open();
  time.advance(true);
  CHECK(driver.records == 1);
  CHECK(time.open() == stamp + 1);
  CHECK_FALSE(time.is_safe(stamp));
  driver.finish();
  time.advance(false);
  CHECK(time.is_safe(stamp));
  CHECK(time.is_completed(stamp));
  CHECK_FALSE(time.is_safe(time.open()));
}

TEST_CASE_METHOD(World, "a barrier makes memory safe for the GPU at once, and for the host when it is done") {
  work(kS);
  work(kT);
  const Epoch stamp = time.open();
  CHECK(time.barrier());
  CHECK(driver.orders == 1);
  CHECK(time.is_safe(stamp));
  CHECK_FALSE(time.is_completed(stamp));
  driver.finish();
  time.advance(false);
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "after a barrier the lanes before it no longer matter") {
  work(kS);
  work(kT);
  REQUIRE(time.barrier());
  work(kU);
  CHECK(time.request_grant());
}

TEST_CASE_METHOD(World, "many lanes become one again when the seal that covers them is done") {
  work(kS);
  work(kT);
  time.advance(true);
  work(kS);
  CHECK_FALSE(time.request_grant());
  driver.finish();
  time.advance(false);
  CHECK(time.request_grant());
}

TEST_CASE_METHOD(World, "lanes noted after a seal outlive its completion") {
  work(kS);
  time.advance(true);
  work(kT);
  CHECK_FALSE(time.request_grant());
  driver.finish();
  time.advance(false);
  REQUIRE(time.request_grant());
  CHECK(time.before_submit(kS));
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "each seal forgets its own lanes: the one still running counts") {
  work(kS);
  time.advance(true);
  work(kT);
  time.advance(true);
  driver.finish_oldest();
  time.advance(false);
  work(kT);
  REQUIRE(time.request_grant());
  work(kT);
  CHECK(driver.orders == 0);
  work(kS);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "a grant ends with its epoch and can be had again") {
  work(kS);
  REQUIRE(time.request_grant());
  time.advance(true);
  CHECK_FALSE(time.is_granted());
  CHECK(time.request_grant());
  CHECK(time.is_granted());
}

TEST_CASE_METHOD(World, "the seal of an earlier epoch leaves a later guard standing") {
  work(kS);
  REQUIRE(time.request_grant());
  time.advance(true);
  work(kS);
  REQUIRE(time.request_grant());
  driver.finish();
  time.advance(false);
  CHECK(time.before_submit(kT));
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "the seal of the guard's own epoch takes the guard away") {
  work(kS);
  REQUIRE(time.request_grant());
  time.advance(true);
  driver.finish();
  time.advance(false);
  CHECK(time.before_submit(kT));
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(World, "a grant for another lane orders the lane that is left behind") {
  work(kS);
  time.advance(true);
  REQUIRE(time.request_grant());
  work_begun_earlier(kT);
  driver.finish();
  time.advance(false);
  // All unfinished work is in T, and S is guarded still.
  CHECK(time.request_grant());
  CHECK(driver.orders == 1);
  work(kT);
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(World, "one seal under way is enough unless more is asked for") {
  work(kS);
  time.advance(false);
  time.advance(false);
  CHECK(driver.records == 1);
  time.advance(true);
  CHECK(driver.records == 2);
}

TEST_CASE_METHOD(World, "a later seal that is done proves the earlier ones") {
  work(kS);
  const Epoch stamp = time.open();
  const Epoch wait = time.begin_wait(Lane::kMany);
  CHECK(wait == stamp);
  time.advance(true);
  driver.finish();
  time.advance(false);
  CHECK(time.is_completed(stamp));
  time.end_wait(wait, false);
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "a record that fails proves nothing, and its lanes count on") {
  work(kS);
  const Epoch stamp = time.open();
  driver.fail_record = driver::kNotSupported;
  time.advance(true);
  time.advance(false);
  CHECK_FALSE(time.is_safe(stamp));
  driver.fail_record = driver::kSuccess;
  work(kT);
  CHECK_FALSE(time.request_grant());
  CHECK(time.barrier());
  CHECK(time.is_safe(stamp));
}

TEST_CASE_METHOD(
    World, "a guard that could not be ordered is not forgotten, and the work that trips it is refused") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  driver.fail_record = driver::kNotSupported;
  driver.fail_synchronize = driver::kNotSupported;
  CHECK_FALSE(time.before_submit(kT));
  CHECK(time.refusal() == driver::kNotSupported);
  CHECK_FALSE(time.is_safe(stamp));
  driver.fail_record = driver.fail_synchronize = driver::kSuccess;
  CHECK(time.before_submit(kT));
  CHECK(time.is_safe(stamp));
}

TEST_CASE_METHOD(World, "a guard is ordered however many seals are still running") {
  for (int i = 0; i < 300; ++i) {
    work(i % 2 == 0 ? kS : kT);
    const Epoch stamp = time.open();
    time.request_grant();
    CHECK(time.before_submit(i % 2 == 0 ? kT : kS));
    REQUIRE(time.is_safe(stamp));
  }
  const Epoch last = time.open() - 1;
  driver.finish();
  time.advance(false);
  CHECK(time.is_completed(last));
}

TEST_CASE_METHOD(World, "seals that pile up still know their lanes") {
  for (int i = 0; i < 100; ++i) time.advance(true);
  work(kS);
  for (int i = 0; i < 100; ++i) time.advance(true);
  work(kT);
  CHECK_FALSE(time.request_grant());
  driver.finish();
  time.advance(false);
  CHECK(time.request_grant());
}

TEST_CASE_METHOD(World, "a barrier the device refuses is waited for on the host") {
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  driver.fail_order = driver::kNotSupported;
  CHECK(time.before_submit(kT));
  CHECK(time.is_completed(stamp));
}

TEST_CASE_METHOD(World, "a driver without context events synchronises where a barrier would be") {
  driver.context_events = false;
  work(kS);
  const Epoch stamp = time.open();
  REQUIRE(time.request_grant());
  work(kT);
  CHECK(driver.synchronisations == 1);
  CHECK(time.is_completed(stamp));
  work(kS);
  CHECK_FALSE(time.request_grant());
  CHECK(time.barrier());
  CHECK(driver.synchronisations == 2);
  CHECK(driver.records == 0);
}
