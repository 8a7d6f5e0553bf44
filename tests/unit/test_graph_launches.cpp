// Waits of ours and graphs that other threads launch into the same stream.
#include <atomic>
#include <optional>
#include <thread>

#include "order/graph_launches.hpp"
#include "order_world.hpp"

using namespace cupool;
using namespace cupool::test;
using order::GraphLaunches;
using order::Lane;

namespace {

// Lets other threads get as far as they can.
void let_others_run() {
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
}

// Whether `act`, in a thread of its own, ends while `held` is there.
template <typename Held, typename Act>
bool ends_beside(std::optional<Held>& held, Act act) {
  std::atomic<bool> is_held{true};
  std::atomic<bool> was_held{false};
  std::thread other([&] {
    act();
    was_held = is_held.load();
  });
  let_others_run();
  is_held = false;
  held.reset();
  other.join();
  return was_held;
}

}  // namespace

TEST_CASE("a wait is made when no graph is being launched into its stream, not before") {
  std::optional<GraphLaunches::Launch> launch(std::in_place, GraphLaunches::Place(kS, kFirst));
  CHECK_FALSE(ends_beside(launch, [] { const GraphLaunches::Wait wait({kS, kFirst}); }));
}

TEST_CASE("a graph is launched when no wait is being made for its stream, not before") {
  std::optional<GraphLaunches::Wait> wait(std::in_place, GraphLaunches::Place(kS, kFirst));
  CHECK_FALSE(ends_beside(wait, [] { const GraphLaunches::Launch launch({kS, kFirst}); }));
}

TEST_CASE("a stream has one name whichever context asks") {
  std::optional<GraphLaunches::Launch> launch(std::in_place, GraphLaunches::Place(kS, kFirst));
  CHECK_FALSE(ends_beside(launch, [] { const GraphLaunches::Wait wait({kS, kSecond}); }));
}

TEST_CASE("graphs launched elsewhere hold up no wait") {
  const GraphLaunches::Launch launch({kS, kFirst});
  const GraphLaunches::Launch legacy({Lane::kLegacy, kFirst});
  const GraphLaunches::Wait other_stream({kT, kFirst});
  const GraphLaunches::Wait other_context({Lane::kLegacy, kSecond});
}

TEST_CASE("launches hold up no launch, and waits no wait") {
  {
    const GraphLaunches::Launch one({kS, kFirst});
    const GraphLaunches::Launch other({kS, kFirst});
  }
  const GraphLaunches::Wait one({kS, kFirst});
  const GraphLaunches::Wait other({kS, kFirst});
}

TEST_CASE("launches that overlap without end do not keep a wait out") {
  std::atomic<bool> has_waited{false};
  std::optional<GraphLaunches::Launch> launches[2];
  launches[0].emplace(GraphLaunches::Place(kS, kFirst));
  std::thread other([&] {
    const GraphLaunches::Wait wait({kS, kFirst});
    has_waited = true;
  });
  // The next one begins before the last one ends; it is held back as soon as the wait is known.
  for (unsigned i = 1; !has_waited; ++i) {
    std::thread next([&] { launches[i % 2].emplace(GraphLaunches::Place(kS, kFirst)); });
    std::this_thread::yield();
    launches[(i - 1) % 2].reset();
    next.join();
  }
  other.join();
}

TEST_CASE("more streams at once than there is room for take turns") {
  std::atomic<unsigned> done{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i <= 300; ++i) {
    threads.emplace_back([&, i] {
      const GraphLaunches::Launch launch({Lane{i << 4}, kFirst});
      ++done;
      while (done < 200) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done == 300);
}

TEST_CASE_METHOD(OrderWorld, "a stream waits for old work when no graph is being launched into it") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  std::optional<GraphLaunches::Launch> launch(std::in_place, GraphLaunches::Place(kT, kFirst));
  SECTION("its own context's") {
    CHECK_FALSE(ends_beside(launch, [&] { app.work(kT); }));
  }
  SECTION("another context's") {
    CHECK_FALSE(ends_beside(launch, [&] { CHECK(time.before_visit({kT, kSecond}, stream_of(kT))); }));
  }
  CHECK(driver.stream_waits.size() == 1);
}
