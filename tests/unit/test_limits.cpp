// Memory under the user's limits: such as is cut, and such as never is.
#include <stdlib.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

const bool environment_is_set = setenv("CUPOOL_LIMIT", "512M", 1) == 0 &&
                                setenv("CUPOOL_MAX_CACHED", "128M", 1) == 0 &&
                                setenv("CUPOOL_LOG", "quiet", 1) == 0;

struct BusyDriver final : FakeDriver {
  std::atomic<int> inside{0};
  std::atomic<int> made{0};
  std::function<void()> meanwhile;
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    ++inside;
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    --inside;
    ++made;
    return FakeDriver::allocate(bytes, out);
  }
};

struct CutWorld : BasicPoolWorld<BusyDriver> {
  CutWorld() { REQUIRE(environment_is_set); }
  driver::Status try_allocate(uint64_t bytes, driver::Context where) {
    driver::Address address = 0;
    return memory.allocate(where, bytes, &address);
  }
  driver::Status try_allocate(uint64_t bytes) { return try_allocate(bytes, context); }
  uint64_t refusals() { return stats::device(0).read().out_of_memory_retries; }

  struct Both {
    driver::Status first, second;
  };
  // A second thread asks while the driver has the first one's request, until it was refused or asks the
  // driver itself.
  Both ask_at_once(uint64_t first_bytes, uint64_t second_bytes) {
    Both both{};
    std::thread other;
    const uint64_t before = refusals();
    const int made = driver.made;
    driver.meanwhile = [&] {
      other = std::thread([&] { both.second = try_allocate(second_bytes); });
      while (refusals() == before && driver.inside == 1 && driver.made == made) std::this_thread::yield();
    };
    both.first = try_allocate(first_bytes);
    other.join();
    return both;
  }
  void check_that_one_of_two_is_refused() {
    const Both both = ask_at_once(300 * kMiB, 300 * kMiB);
    CHECK(both.first == driver::kSuccess);
    CHECK(both.second == driver::kOutOfMemory);
    CHECK(driver.peak == 300 * kMiB);
  }
};

struct LimitedWorld : CutWorld {
  LimitedWorld() { memory.use_dedicated_allocations(); }
};

}  // namespace

TEST_CASE_METHOD(CutWorld, "two threads that need more segments do not get past the limit together") {
  check_that_one_of_two_is_refused();
}

TEST_CASE_METHOD(CutWorld, "the limit is of a device, whatever contexts it has") {
  const auto another = reinterpret_cast<driver::Context>(0xabc0);
  CHECK(try_allocate(300 * kMiB) == driver::kSuccess);
  CHECK(try_allocate(300 * kMiB, another) == driver::kOutOfMemory);
  // What ends with its context counts no more.
  memory.close(context);
  CHECK(try_allocate(300 * kMiB, another) == driver::kSuccess);
  memory.close(another);
}

TEST_CASE_METHOD(LimitedWorld, "two threads that ask for memory at once do not get past the limit together") {
  check_that_one_of_two_is_refused();
}

TEST_CASE_METHOD(LimitedWorld, "what the driver refused to one thread is there for another, limit or not") {
  driver.capacity = 400 * kMiB;
  REQUIRE(try_allocate(100 * kMiB) == driver::kSuccess);
  const Both both = ask_at_once(350 * kMiB, 200 * kMiB);
  CHECK(both.first == driver::kOutOfMemory);
  CHECK(both.second == driver::kSuccess);
}

TEST_CASE_METHOD(LimitedWorld, "idle blocks that the driver will not take count towards the limit") {
  free(allocate(100 * kMiB));
  driver.fail_release = 999;
  CHECK(try_allocate(500 * kMiB) == driver::kOutOfMemory);
  driver.fail_release = driver::kSuccess;
  CHECK(try_allocate(500 * kMiB) == driver::kSuccess);
  CHECK(driver.reserved == 500 * kMiB);
}

TEST_CASE_METHOD(LimitedWorld, "a context that ends leaves room within the limit for the next") {
  allocate(500 * kMiB);
  memory.close(context);
  CHECK(try_allocate(500 * kMiB) == driver::kSuccess);
}

TEST_CASE_METHOD(LimitedWorld, "during a capture nothing goes back, however much is kept") {
  const std::vector<driver::Address> blocks{allocate(100 * kMiB), allocate(100 * kMiB), allocate(100 * kMiB)};
  memory.order().gate().begin_capture();
  free(blocks[0]);
  free(blocks[1]);
  CHECK(memory.idle().trim(0) == 0);
  CHECK(driver.releases == 0);
  memory.order().gate().end_capture();
  free(blocks[2]);
  CHECK(driver.reserved == 100 * kMiB);
}
