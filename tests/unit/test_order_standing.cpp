// Nothing is held across a call that makes a context wait: it may stand as long as a launch stands.
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include "order_world.hpp"
#include "other_thread.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

// Runs `steps` in another thread while the first wait of the driver's is being made; they must end meanwhile.
struct Meanwhile {
  Meanwhile(OrderDriver& driver, std::function<void()> steps) {
    driver.on_wait = [this, steps = std::move(steps)] {
      if (!std::exchange(is_first, false)) return;
      other = std::async(std::launch::async, steps);
      has_ended = other.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    };
  }
  std::future<void> other;
  bool is_first = true;
  bool has_ended = false;
};

}  // namespace

TEST_CASE_METHOD(Process, "while one context is made to wait, so can be another") {
  all.join(kSecond);
  all.expect_untracked_work("a test");
  const OrderSteps first = of(kFirst), second = of(kSecond);
  first.use_and_free(kS);
  second.use_and_free(kT);
  const Meanwhile meanwhile(driver, [&] { second.time.reach(); });
  REQUIRE(first.time.reach());
  CHECK(meanwhile.has_ended);
}

TEST_CASE_METHOD(Process, "while a context is made to wait, a capture can begin in another one") {
  all.join(kSecond);
  of(kSecond);
  all.expect_untracked_work("a test");
  const OrderSteps first = of(kFirst);
  first.use_and_free(kS);
  const Meanwhile meanwhile(driver, [&] { all.gate().begin_capture(kSecond); });
  REQUIRE(first.time.reach());
  CHECK(meanwhile.has_ended);
}

TEST_CASE_METHOD(Process, "a capture begins in a context only when no wait of it is being made") {
  all.expect_untracked_work("a test");
  const OrderSteps first = of(kFirst);
  first.use_and_free(kS);
  std::optional<OtherThread> beginner;
  driver.on_wait = [&] {
    beginner.emplace([&] { all.gate().begin_capture(kFirst); });
    CHECK(beginner->stands());
  };
  REQUIRE(first.time.reach());
  REQUIRE(beginner);
  beginner->join();
  CHECK(all.is_capturing());
}

TEST_CASE_METHOD(Process, "while untracked work makes a context wait, another context can get its timeline") {
  const OrderSteps first = of(kFirst);
  first.work(kT);
  REQUIRE(first.hand_out(first.use_and_free(kS)));
  const Meanwhile meanwhile(driver, [&] { all.of(kSecond); });
  all.expect_untracked_work("a test");
  CHECK(driver.context_waits.size() == 1);
  CHECK(meanwhile.has_ended);
}

// The driver may let who makes a stream wait for a launch or a free that stands in its context.
TEST_CASE_METHOD(Process,
                 "the stream by which memory goes back is made by no thread of another context, but by the "
                 "context's own next free or growth") {
  driver.ordered_frees = true;
  const OrderSteps first = of(kFirst);
  CHECK_FALSE(first.time.ask_for_spare_stream());
  CHECK(driver.streams == 0);
  SECTION("a free") {
    first.work(kS);
    first.free_and_seal();
  }
  SECTION("a growth") { first.time.keep_events(); }
  CHECK(driver.streams == 1);
  CHECK(first.time.ask_for_spare_stream());
  first.work(kS);
  first.free_and_seal();
  CHECK(driver.streams == 1);
}
