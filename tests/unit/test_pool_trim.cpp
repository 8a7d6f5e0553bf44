// Giving memory back: what trimming releases and what it must leave, the steps before an allocation fails,
// refused releases, and what the user's limits do. The limits stand in the environment, which a process reads
// once.
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include "other_thread.hpp"
#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;
using memory::Freed;

namespace {

constexpr uint64_t kLimit = 512 * kMiB;
constexpr uint64_t kMostCached = 128 * kMiB;
const bool environment_is_set = setenv("CUPOOL_LIMIT", "512M", 1) == 0 &&
                                setenv("CUPOOL_MAX_CACHED", "128M", 1) == 0 &&
                                setenv("CUPOOL_LOG", "quiet", 1) == 0;

struct WatchedDriver : FakeDriver {
  std::function<void()> on_release = [] {};
  driver::Status release(driver::Address start) override {
    on_release();
    return FakeDriver::release(start);
  }
};
struct WatchedWorld : BasicPoolWorld<WatchedDriver> {
  std::optional<OtherThread> other;
  void begin_capture_with_release() {
    driver.on_release = [this] {
      other.emplace([this] { memory.order().gate().begin_capture(context); });
      CHECK_FALSE(other->stands());
    };
  }
  void finish_capture() {
    REQUIRE(other);
    other->join();
    CHECK(memory.order().is_capturing());
    memory.order().gate().end_capture();
  }
};

}  // namespace

TEST_CASE_METHOD(PoolWorld, "trimming gives back every segment that holds no block, and no other") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(30 * kMiB));
  const auto small = allocate(512);
  free(blocks[0]);
  free(blocks[2]);
  const uint64_t could = pool().segments().releasable_bytes();
  const uint64_t before = driver.reserved;
  CHECK(pool().release_everything() == could);
  CHECK(driver.reserved == before - could);
  CHECK(could >= 60 * kMiB);
  for (const auto address : {blocks[1], blocks[3], small}) {
    memory::BlockInfo held;
    CHECK(memory.find(address, &held));
    free(address);
  }
  pool().release_everything();
  CHECK(driver.reserved == 0);
  CHECK(pool().segments().releasable_bytes() == 0);
}

TEST_CASE_METHOD(PoolWorld, "a trim empties thread caches, and releases nothing during a capture") {
  for (int i = 0; i < 50; ++i) free(allocate(4096));
  memory.order().gate().begin_capture();
  CHECK(pool().release_everything() == 0);
  memory.order().gate().end_capture();
  CHECK(pool().release_everything() > 0);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(WatchedWorld, "a capture that begins while memory goes back does not wait for it") {
  free(allocate(30 * kMiB));
  begin_capture_with_release();
  CHECK(pool().release_everything() >= 30 * kMiB);
  finish_capture();
}

TEST_CASE_METHOD(WatchedWorld, "nor does one that begins while a dedicated block goes back") {
  driver::Address dedicated = 0;
  REQUIRE(memory.allocate_dedicated(context, driver, 30 * kMiB, &dedicated) == driver::kSuccess);
  free(dedicated);
  begin_capture_with_release();
  CHECK(memory.idle().trim(0) == 30 * kMiB);
  finish_capture();
}

TEST_CASE_METHOD(PoolWorld, "a release proves that all work before it is over") {
  const auto address = allocate(30 * kMiB);
  work(kS);
  work(kT);
  const order::Epoch stamp = time().open();
  free(address);
  pool().release_everything();
  CHECK(time().completed() >= stamp);
}

TEST_CASE_METHOD(PoolWorld, "a segment that the driver refuses to take back is kept, with its stamp") {
  const auto address = allocate(30 * kMiB);
  work(kS);
  work(kT);
  const order::Epoch stamp = time().open();
  free(address);
  driver.fail_release = driver::kNotSupported;
  CHECK(pool().release_everything() == 0);
  CHECK(reserved() == driver.reserved);
  CHECK(time().completed() < stamp);
  check_records();
  CHECK(pool().ranges().take(30 * kMiB, time(), order::Reach::kCheap) == nullptr);
  driver.fail_release = driver::kSuccess;
  time().wait_for_all();
  CHECK(allocate(30 * kMiB) == address);
}

// ---- Out of memory.

TEST_CASE_METHOD(PoolWorld, "memory that is free in pieces goes back before an allocation fails") {
  driver.capacity = 200 * kMiB;
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocate(30 * kMiB));
  for (const auto block : blocks) free(block);
  CHECK(allocate(190 * kMiB) != 0);
}

TEST_CASE_METHOD(PoolWorld, "sealed memory serves before the driver refuses, and nothing waits on the host") {
  driver.capacity = 64 * kMiB;
  const auto address = allocate(60 * kMiB);
  work(kS);
  work(kT);
  free(address);
  CHECK(allocate(60 * kMiB) == address);
  CHECK(driver.synchronisations == 0);
  CHECK(driver.releases == 0);
}

TEST_CASE_METHOD(PoolWorld, "memory whose work is still running is waited for before an allocation fails") {
  driver.capacity = 64 * kMiB;
  const auto address = allocate(60 * kMiB);
  work(kS);
  work(kT);
  driver.fail_record = driver::kNotSupported;
  free(address);
  work(kT);
  CHECK(allocate(60 * kMiB) == address);
  CHECK(driver.synchronisations > 0);
}

TEST_CASE_METHOD(PoolWorld, "where a larger segment does not fit, one of the needed size is taken") {
  driver.capacity = 6 * kMiB;
  CHECK(allocate(5 * kMiB) != 0);
}

TEST_CASE_METHOD(PoolWorld,
                 "when nothing helps the driver's own error comes back, and what is held stays held") {
  driver.capacity = 64 * kMiB;
  const auto address = allocate(40 * kMiB);
  driver::Address more = 0;
  CHECK(memory.allocate(context, 40 * kMiB, &more) == driver::kOutOfMemory);
  CHECK(memory.allocate(context, 40 * kMiB, &more) == driver::kOutOfMemory);
  memory::BlockInfo held;
  CHECK(memory.find(address, &held));
  free(address);
  CHECK(memory.allocate(context, 60 * kMiB, &more) == driver::kSuccess);
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "during a capture an allocation fails rather than wait or release") {
  driver.capacity = 64 * kMiB;
  const auto address = allocate(60 * kMiB);
  work(kS);
  memory.order().gate().begin_capture();
  free(address);
  driver::Address more = 0;
  CHECK(memory.allocate(context, 60 * kMiB, &more) == driver::kOutOfMemory);
  CHECK(driver.releases == 0);
  CHECK(driver.synchronisations == 0);
  memory.order().gate().end_capture();
  driver.end_work_when_watched();
  CHECK(memory.allocate(context, 60 * kMiB, &more) == driver::kSuccess);
}

// ---- The user's limits.

TEST_CASE_METHOD(PoolWorld, "the pool never reserves more than its limit, and says so as the driver would") {
  REQUIRE(environment_is_set);
  std::vector<driver::Address> blocks;
  driver::Address address = 0;
  while (memory.allocate(context, 20 * kMiB, &address) == driver::kSuccess) blocks.push_back(address);
  CHECK(blocks.size() == kLimit / (20 * kMiB));
  CHECK(driver.peak <= kLimit);
  CHECK(memory.allocate(context, 600 * kMiB, &address) == driver::kOutOfMemory);
  for (const auto block : blocks) free(block);
  CHECK(memory.allocate(context, 500 * kMiB, &address) == driver::kSuccess);
}

TEST_CASE_METHOD(PoolWorld, "above the most that may be cached, whole free segments go back with the free") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate(40 * kMiB));
  for (const auto block : blocks) free(block);
  CHECK(driver.releases > 0);
  CHECK(pool().ranges().bytes().free() <= kMostCached);
  CHECK(pool().ranges().bytes().free() >= kMostCached - 40 * kMiB);
}

TEST_CASE_METHOD(PoolWorld, "below the most that may be cached, nothing goes back") {
  for (int i = 0; i < 100; ++i) free(allocate(40 * kMiB));
  CHECK(driver.releases == 0);
}

TEST_CASE_METHOD(PoolWorld, "under a limit on what is cached no thread keeps many middle sizes") {
  for (int round = 0; round < 8; ++round) {
    std::vector<driver::Address> blocks;
    for (uint64_t i = 0; i < 256; ++i) blocks.push_back(allocate((i % 16 + 4) * 32 * kKiB));
    for (const auto block : blocks) free(block);
  }
  CHECK(reserved() - pool().ranges().bytes().free() <= kMiB);
}
