// Waits of ours beside graphs that other threads launch into the same stream.
#include <sched.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "order/graph_launches.hpp"
#include "order_world.hpp"

using namespace cupool;
using namespace cupool::test;
using order::GraphLaunches;
using order::Lane;

namespace {

GraphLaunches::Launch launch_into(Lane lane, driver::Context context = kFirst) {
  return GraphLaunches::Launch(GraphLaunches::Place(lane, context));
}
GraphLaunches::QuietMoment look_at(Lane lane, driver::Context context = kFirst) {
  return GraphLaunches::QuietMoment(GraphLaunches::Place(lane, context));
}

// The two sides wait for each other for some microseconds only, and a thread is often away for longer: so
// these ask for a few good rounds of many, of which there are hardly any without the waiting. Nobody yields:
// on a busy machine that takes a slice of time.
constexpr int kRounds = 400;
constexpr int kFew = 4;
constexpr uint64_t kTakesItsTime = 3000;

void stay_on(size_t processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  sched_setaffinity(0, sizeof one, &one);
}
// Calls body(processor for another thread) in a thread with a processor of its own; not if there is only one.
template <typename Body>
void on_two_processors(Body&& body) {
  cpu_set_t set;
  std::vector<size_t> all;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) all.push_back(i);
  }
  if (all.size() < 2) return;
  std::thread([&] {
    stay_on(all[0]);
    body(all[1]);
  }).join();
}
void spin() {
  for (const uint64_t begin = now_ns(); now_ns() < begin + kTakesItsTime;) {
  }
}

}  // namespace

TEST_CASE("a moment is quiet if no graph is launched into the stream before its end") {
  { const auto before = launch_into(kS); }
  const auto moment = look_at(kS);
  CHECK(moment.is_quiet());
  CHECK(moment.has_lasted());
  { const auto meanwhile = launch_into(kS); }
  CHECK_FALSE(moment.has_lasted());
}

TEST_CASE("a moment is not quiet while a graph is being launched into the stream") {
  std::optional<GraphLaunches::QuietMoment> moment;
  {
    const auto launch = launch_into(kS);
    moment.emplace(GraphLaunches::Place(kS, kFirst));
    CHECK_FALSE(moment->is_quiet());
  }
  // It began before the launch had ended.
  CHECK_FALSE(moment->has_lasted());
}

TEST_CASE("a graph that is launched while a wait of ours is made goes on when it is, and the wait counts") {
  on_two_processors([](size_t other) {
    int counted = 0;
    int too_early = 0;
    for (int i = 0; i < kRounds; ++i) {
      std::atomic<bool> arrives{false};
      std::atomic<bool> is_made{false};
      bool comes_after = false;
      bool counts = false;
      std::thread launcher;
      {
        const auto moment = look_at(kS);
        launcher = std::thread([&] {
          stay_on(other);
          arrives = true;
          const auto launch = launch_into(kS);
          comes_after = is_made.load();
        });
        while (!arrives) {
        }
        spin();
        is_made = true;
        counts = moment.has_lasted();
      }
      launcher.join();
      counted += counts ? 1 : 0;
      too_early += counts && !comes_after ? 1 : 0;
    }
    CHECK(counted >= kFew);
    CHECK(too_early == 0);
  });
}

TEST_CASE("a wait of ours is made when the launch that was under way has ended") {
  on_two_processors([](size_t other) {
    int quiet = 0;
    for (int i = 0; i < kRounds; ++i) {
      std::atomic<bool> is_under_way{false};
      std::atomic<bool> may_end{false};
      std::thread launcher([&] {
        stay_on(other);
        const auto launch = launch_into(kS);
        is_under_way = true;
        while (!may_end) {
        }
        spin();
      });
      while (!is_under_way) {
      }
      may_end = true;
      quiet += look_at(kS).is_quiet() ? 1 : 0;
      launcher.join();
    }
    CHECK(quiet >= kFew);
  });
}

TEST_CASE("one of several launches is enough") {
  std::optional<GraphLaunches::Launch> first(std::in_place, GraphLaunches::Place(kS, kFirst));
  const auto second = launch_into(kS);
  first.reset();
  CHECK_FALSE(look_at(kS).is_quiet());
}

TEST_CASE("a stream has one name whichever context asks, a default stream one in each") {
  const auto stream = launch_into(kS, kFirst);
  CHECK_FALSE(look_at(kS, kSecond).is_quiet());
  const auto legacy = launch_into(Lane::kLegacy, kFirst);
  CHECK_FALSE(look_at(Lane::kLegacy, kFirst).is_quiet());
  CHECK(look_at(Lane::kLegacy, kSecond).is_quiet());
}

// ---- What a timeline makes of it.

TEST_CASE_METHOD(OrderWorld, "beside a graph launched into its stream a wait is made by the whole context") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  std::optional<GraphLaunches::Launch> launch;
  SECTION("that is under way") {
    launch.emplace(GraphLaunches::Place(kT, kFirst));
    app.work(kT);
    CHECK(driver.stream_waits.empty());
  }
  SECTION("that begins during the wait") {
    driver.on_wait = [&] { launch.emplace(GraphLaunches::Place(kT, kFirst)); };
    app.work(kT);
    CHECK(driver.stream_waits.size() == 1);
  }
  SECTION("that begins and ends during the wait") {
    driver.on_wait = [&] { const auto meanwhile = launch_into(kT); };
    app.work(kT);
    CHECK(driver.stream_waits.size() == 1);
  }
  REQUIRE(driver.context_waits.size() == 1);
  CHECK(driver.context_waits[0].context == kFirst);
  CHECK(driver.context_waits[0].record == 0);
  // It has waited now.
  const size_t waits = driver.stream_waits.size();
  launch.reset();
  driver.on_wait = [] {};
  app.work(kT);
  CHECK(driver.stream_waits.size() == waits);
  CHECK(driver.context_waits.size() == 1);
}

TEST_CASE_METHOD(OrderWorld,
                 "beside a graph launched into its stream a copy of another context waits itself") {
  const order::Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  std::optional<GraphLaunches::Launch> launch;
  SECTION("that is under way") { launch.emplace(GraphLaunches::Place(kT, kSecond)); }
  SECTION("that begins during the wait") {
    driver.on_wait = [&] { launch.emplace(GraphLaunches::Place(kT, kSecond)); };
  }
  finish_after(driver, 5);
  CHECK(time.before_visit(kT, stream_of(kT), kSecond, stamp));
  CHECK(driver.context_waits.empty());
  CHECK(time.completed() >= stamp);
}

TEST_CASE_METHOD(OrderWorld, "a graph launched elsewhere changes no wait") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  const auto launch = launch_into(kU);
  app.work(kT);
  CHECK(driver.stream_waits.size() == 1);
  CHECK(driver.context_waits.empty());
}

TEST_CASE_METHOD(OrderWorld, "where no wait is needed a graph under way changes nothing") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  const auto launch = launch_into(kS);
  app.work(kS);
  CHECK(driver.stream_waits.empty());
  CHECK(driver.context_waits.empty());
}

TEST_CASE_METHOD(OrderWorld, "during a capture a wait is tried until it meets no launch") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  gate.begin_capture();
  unsigned tries = 0;
  driver.on_wait = [&] {
    if (++tries == 5) return;
    const auto meanwhile = launch_into(kT);
  };
  app.work(kT);
  gate.end_capture();
  CHECK(tries == 5);
  CHECK(driver.context_waits.empty());
}

TEST_CASE_METHOD(OrderWorld, "a launch that does not end stops nobody, not even during a capture") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  const auto launch = launch_into(kT);
  gate.begin_capture();
  app.work(kT);
  gate.end_capture();
  CHECK(driver.stream_waits.size() == 1);
  CHECK(driver.context_waits.empty());
}

TEST_CASE_METHOD(OrderWorld, "a submission is refused if the context cannot be made to wait either") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  const auto launch = launch_into(kT);
  driver.fail_order = driver::kInvalidContext;
  CHECK_FALSE(app.submit(kT));
  CHECK(time.refusal() == driver::kInvalidContext);
}
