// Memory that one thread gives back while another looks for some: what waits for it, and what must not.
#include <atomic>
#include <thread>

#include "base/clock.hpp"
#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constinit thread_local int current_device = 0;

// A release on device 1 ends when the other thread has got its answer, or has been stuck for long.
struct TwoDevices final : FakeDriver {
  std::atomic<bool> is_releasing{false};
  std::atomic<bool> is_answered{false};
  driver::Status device(int* number) override {
    *number = current_device;
    return driver::kSuccess;
  }
  driver::Status release_in(driver::Context context, driver::Address start) override {
    constexpr uint64_t kLong = 2'000'000'000;
    if (current_device == 1) {
      is_releasing = true;
      const uint64_t begin = now_ns();
      while (!is_answered && now_ns() - begin < kLong) std::this_thread::yield();
      is_released = true;
    }
    return FakeDriver::release_in(context, start);
  }
  std::atomic<bool> is_released{false};
};

struct ReleaseWorld : BasicPoolWorld<TwoDevices> {
  // The other device's work may wait for what this thread does next.
  void expect_no_wait_for_another_device() {
    const auto another = reinterpret_cast<driver::Context>(0x20);
    allocate(10 * kMiB);
    std::thread other([&] {
      current_device = 1;
      driver::Address block = 0;
      CHECK(memory.allocate(another, 40 * kMiB, &block) == driver::kSuccess);
      CHECK(memory.free(block) == memory::Freed::kDone);
      driver.capacity = driver.reserved;
      memory.trim(0);
    });
    while (!driver.is_releasing) std::this_thread::yield();
    driver::Address block = 0;
    CHECK(memory.allocate(context, 100 * kMiB, &block) == driver::kOutOfMemory);
    CHECK_FALSE(driver.is_released);
    driver.is_answered = true;
    other.join();
    memory.close(another);
  }
};

}  // namespace

TEST_CASE_METHOD(ReleaseWorld, "an allocation does not wait for memory that another device gets back") {
  expect_no_wait_for_another_device();
}

TEST_CASE_METHOD(ReleaseWorld, "nor does one of a whole block") {
  memory.use_whole_allocations();
  expect_no_wait_for_another_device();
}

TEST_CASE_METHOD(ReleaseWorld, "idle whole blocks of another device stay where they are") {
  const auto another = reinterpret_cast<driver::Context>(0x20);
  memory.use_whole_allocations();
  allocate(10 * kMiB);
  driver.is_answered = true;
  std::thread([&] {
    current_device = 1;
    driver::Address block = 0;
    CHECK(memory.allocate(another, 40 * kMiB, &block) == driver::kSuccess);
    CHECK(memory.free(block) == memory::Freed::kDone);
  }).join();
  driver.capacity = driver.reserved;
  driver::Address block = 0;
  CHECK(memory.allocate(context, 30 * kMiB, &block) == driver::kOutOfMemory);
  CHECK(driver.releases == 0);
  memory.close(another);
}
