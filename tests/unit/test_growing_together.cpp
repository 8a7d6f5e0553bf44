// Threads that find no memory at the same moment.
#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "other_thread.hpp"
#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct SlowDriver : FakeDriver {
  std::function<void()> while_asked = [] {};
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    std::exchange(while_asked, [] {})();
    return FakeDriver::allocate(bytes, out);
  }
};
struct SlowWorld : BasicPoolWorld<SlowDriver> {
  // How many segments threads take whose allocations meet with one that the driver has.
  uint64_t segments_of(size_t others, uint64_t bytes) {
    free(allocate(1000));  // what a pool takes for itself is there
    memory.idle().trim(0);
    const uint64_t before = driver.allocations;
    std::deque<OtherThread> threads;
    driver.while_asked = [&] {
      for (size_t i = 0; i < others; ++i) {
        threads.emplace_back([&] {
          driver::Address address = 0;
          memory.allocate(context, bytes, &address);
        });
        threads.back().stands();
      }
    };
    allocate(bytes);
    for (OtherThread& thread : threads) thread.join();
    return driver.allocations - before;
  }
  // (They wait only for a moment, in which they may have had no processor.)
  static uint64_t fewest_of(size_t others, uint64_t bytes) {
    uint64_t fewest = others + 1;
    for (int i = 0; i < 50 && fewest != 1; ++i)
      fewest = std::min(fewest, SlowWorld().segments_of(others, bytes));
    return fewest;
  }
};

}  // namespace

TEST_CASE("a small block waits a moment for the segment that another thread is just taking") {
  CHECK(SlowWorld::fewest_of(1, 40'000) == 1);
}

TEST_CASE("threads that come together share one segment as long as it has room for all of them") {
  CHECK(SlowWorld::fewest_of(3, 40'000) == 1);
  CHECK(SlowWorld::fewest_of(1, 1'000'000) == 1);
}

TEST_CASE("a large block waits for nobody else's segment") {
  CHECK(SlowWorld().segments_of(1, 24 * kMiB) == 2);
}
