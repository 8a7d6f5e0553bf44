// Threads that find no memory at the same moment.
#include <algorithm>
#include <functional>
#include <optional>
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
  // How many segments two threads take whose allocations meet.
  uint64_t segments_of_two(uint64_t bytes) {
    free(allocate(1000));  // what a pool takes for itself is there
    memory.idle().trim(0);
    const uint64_t before = driver.allocations;
    std::optional<OtherThread> other;
    driver.while_asked = [&] {
      other.emplace([&] {
        driver::Address address = 0;
        memory.allocate(context, bytes, &address);
      });
      other->stands();
    };
    allocate(bytes);
    other->join();
    return driver.allocations - before;
  }
};

}  // namespace

TEST_CASE("a small block waits a moment for the segment that another thread is just taking") {
  // (Only a moment, in which this thread may have had no processor.)
  uint64_t fewest = 2;
  for (int i = 0; i < 50 && fewest != 1; ++i) fewest = std::min(fewest, SlowWorld().segments_of_two(40'000));
  CHECK(fewest == 1);
}

TEST_CASE("a large block waits for nobody else's segment") {
  CHECK(SlowWorld().segments_of_two(24 * kMiB) == 2);
}
