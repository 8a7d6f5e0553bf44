// Contexts that end while other threads allocate there: what such a thread gets dies with the context, and is
// never handed out in the next one, which has the same handle.
#include <functional>
#include <thread>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct WatchedDriver : FakeDriver {
  std::function<void()> on_allocate = [] {};
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    const driver::Status status = FakeDriver::allocate(bytes, out);
    on_allocate();
    return status;
  }
};

struct EndingWorld : BasicPoolWorld<WatchedDriver> {
  void expect_nothing_kept_while_ending() {
    free(allocate(5000));
    const uint64_t ending = pools.begin_end(context);
    const uint64_t before = driver.allocations;
    const auto lost = allocate(5000);
    CHECK(driver.allocations == before + 1);
    CHECK_FALSE(pools.owns(lost));
    pools.closed(context, ending, true);
    const auto next = allocate(5000);
    CHECK(driver.allocations == before + 2);
    CHECK(pools.owns(next));
  }

  void expect_nothing_kept_of_what_is_under_way() {
    std::thread other;
    driver.on_allocate = [&] {
      if (other.joinable()) return;
      other = std::thread([&] { pools.close(context); });
      // It drops everything now, if it does not wait for us.
      for (int i = 0; i < 2000; ++i) std::this_thread::yield();
    };
    const auto lost = allocate(5000);
    other.join();
    driver.on_allocate = [] {};
    CHECK_FALSE(pools.owns(lost));
    const uint64_t before = driver.allocations;
    allocate(5000);
    CHECK(driver.allocations == before + 1);
  }
};

}  // namespace

TEST_CASE_METHOD(EndingWorld, "while a context ends its allocations are the driver's, and nothing is kept") {
  expect_nothing_kept_while_ending();
}

TEST_CASE_METHOD(EndingWorld, "while a context ends nothing is kept of whole blocks either") {
  pools.use_whole_allocations();
  expect_nothing_kept_while_ending();
}

TEST_CASE_METHOD(EndingWorld, "a segment that is taken as its context ends is not kept for the next one") {
  expect_nothing_kept_of_what_is_under_way();
}

TEST_CASE_METHOD(EndingWorld,
                 "a whole block that is taken as its context ends is not kept for the next one") {
  pools.use_whole_allocations();
  expect_nothing_kept_of_what_is_under_way();
}

TEST_CASE_METHOD(EndingWorld, "a pool that was closed rests before it serves another context") {
  allocate(5000);
  const pool::Pool* const first = &pool();
  for (int i = 0; i < 8; ++i) {
    pools.close(context);
    allocate(5000);
    CHECK(&pool() != first);
  }
  pools.close(context);
  allocate(5000);
  CHECK(&pool() == first);
}
