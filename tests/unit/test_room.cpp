// The last steps before an allocation fails, while other threads give and take memory under its hands: what
// would have been there without the pool is found. The other thread's part is played where the driver
// refuses, or in the middle of a release.
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "other_thread.hpp"
#include "pool_world.hpp"
#include "stats/counters.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constexpr uint64_t kDevice = 64 * kMiB;
constexpr uint64_t kBlock = 60 * kMiB;
const bool environment_is_set = setenv("CUPOOL_LOG", "quiet", 1) == 0;

struct CrowdedDriver : FakeDriver {
  std::function<void(int)> on_refusal = [](int) {};
  std::function<void()> on_release = [] {};
  std::atomic<int> refusals{0};

  CrowdedDriver() { capacity = kDevice; }
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    const driver::Status status = FakeDriver::allocate(bytes, out);
    if (status == driver::kOutOfMemory) on_refusal(++refusals);
    return status;
  }
  driver::Status release_in(driver::Context context, driver::Address start) override {
    on_release();
    return FakeDriver::release_in(context, start);
  }
};

struct CrowdedWorld : BasicPoolWorld<CrowdedDriver> {
  // Allocates in another thread, which was refused when this returns, and waits for us or has failed.
  void allocate_elsewhere(std::optional<OtherThread>& other, driver::Status* result) {
    other.emplace([this, result] {
      driver::Address address = 0;
      *result = memory.allocate(context, kBlock, &address);
    });
    while (driver.refusals < 1) std::this_thread::yield();
    other->stands();
  }

  void expect_room_during_a_release() {
    free(allocate(kBlock));
    driver::Status result = driver::kUnknown;
    std::optional<OtherThread> other;
    driver.on_release = [&] {
      if (!other) allocate_elsewhere(other, &result);
    };
    memory.idle().release_everything();
    REQUIRE(other);
    other->join();
    driver.on_release = [] {};
    CHECK(result == driver::kSuccess);
  }

  // A block was freed, its work is done, and newer work is pending.
  void free_one_of_two() {
    allocate(20 * kMiB);
    const auto block = allocate(20 * kMiB);
    work(kS);
    free(block);
    driver.finish();
    work(kS);
  }

  // Blocks of this size fill the device; returns the last.
  driver::Address fill(uint64_t bytes) {
    driver::Address address = 0;
    driver::Address last = 0;
    while (memory.allocate(context, bytes, &address) == driver::kSuccess) last = address;
    return last;
  }
};

}  // namespace

TEST_CASE_METHOD(CrowdedWorld, "a block that is freed while the driver refuses is found, however late") {
  for (int late = 1; late <= 3; ++late) {
    const auto block = allocate(kBlock);
    driver.refusals = 0;
    driver.on_refusal = [&](int count) {
      if (count == late) free(block);
    };
    const auto next = allocate(kBlock);
    driver.on_refusal = [](int) {};
    free(next);
  }
}

TEST_CASE_METHOD(CrowdedWorld, "a small block that is freed while the driver refuses is found") {
  const auto large = allocate(kBlock);
  std::vector<driver::Address> small;
  driver::Address address = 0;
  while (memory.allocate(context, 30000, &address) == driver::kSuccess) small.push_back(address);
  driver.refusals = 0;
  driver.on_refusal = [&](int count) {
    if (count != 3) return;
    free(small.back());
    pool().caches().empty_all();
  };
  allocate(30000);
  free(large);
}

TEST_CASE_METHOD(CrowdedWorld, "without any free the driver is not asked again and again") {
  allocate(kBlock);
  driver.refusals = 0;
  driver::Address address = 0;
  CHECK(memory.allocate(context, kBlock, &address) == driver::kOutOfMemory);
  CHECK(driver.refusals == 3);
}

TEST_CASE_METHOD(CrowdedWorld, "a segment that another thread is giving back is waited for") {
  expect_room_during_a_release();
}

TEST_CASE_METHOD(CrowdedWorld, "a dedicated block that another thread is giving back is waited for") {
  memory.use_dedicated_allocations();
  expect_room_during_a_release();
}

TEST_CASE_METHOD(CrowdedWorld, "a dedicated block that went back just after the driver refused is seen") {
  memory.use_dedicated_allocations();
  const auto block = allocate(kBlock);
  driver.on_refusal = [&](int count) {
    if (count != 1) return;
    free(block);
    memory.idle().release_everything();
  };
  allocate(kBlock - kMiB);
  CHECK(driver.refusals == 1);
}

TEST_CASE_METHOD(CrowdedWorld, "memory that went back just after a call was refused is seen, once") {
  using enum allocator::Effort;
  memory.shortage().release_for_call(0, kAll, nullptr);
  free(allocate(kBlock));
  std::thread([&] { memory.idle().release_everything(); }).join();
  CHECK(!memory.shortage().release_for_call(0, kDone, nullptr));
  CHECK(!memory.shortage().release_for_call(0, kFrees, nullptr));
  CHECK(memory.shortage().release_for_call(0, kAll, nullptr));
  CHECK(!memory.shortage().release_for_call(0, kAll, nullptr));
}

// ---- Nobody waits in vain. Work is pending that is newer than the last free: it may be waiting for this
// very thread.

TEST_CASE_METHOD(CrowdedWorld, "with nothing free a refusal waits for nothing") {
  allocate(kBlock);
  work(kS);
  driver::Address address = 0;
  CHECK(memory.allocate(context, kBlock, &address) == driver::kOutOfMemory);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(CrowdedWorld, "what would not fit even then is refused without a wait") {
  const bool is_dedicated = GENERATE(false, true);
  const uint64_t asked = GENERATE(50 * kMiB, kDevice, 100 * kDevice);
  if (is_dedicated) memory.use_dedicated_allocations();
  free_one_of_two();
  driver::Address address = 0;
  CHECK(memory.allocate(context, asked, &address) == driver::kOutOfMemory);
  CHECK(driver.synchronisations == 0);
  CHECK(driver.releases == 0);
  // What fits does so because the block goes back, and the driver's free waits.
  allocate(42 * kMiB);
  CHECK(driver.releases == 1);
}

TEST_CASE_METHOD(CrowdedWorld, "memory that the driver keeps to itself counts as what it may give") {
  driver.unreported = 10 * kMiB;
  free_one_of_two();
  allocate(42 * kMiB);
}

TEST_CASE_METHOD(CrowdedWorld, "the end of a mapped segment counts that only grows once its work is done") {
  driver.capacity = 2000 * kMiB;
  use_mapped();
  allocate(1986 * kMiB);
  free(allocate(6 * kMiB));
  allocate(1500 * kKiB);
  const auto end = allocate(3 * kMiB);
  REQUIRE(driver.reserved == 1992 * kMiB);
  time().use_completed_only();
  work(kS);
  free(end);
  CHECK(allocate(12 * kMiB + 512 * kKiB) == end);
  CHECK(driver.synchronisations == 1);
}

TEST_CASE_METHOD(CrowdedWorld, "the last small block is refused without a wait") {
  work(kS);
  fill(30000);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(CrowdedWorld,
                 "on a full device what was freed last is had again without a wait for newer work") {
  const uint64_t bytes = GENERATE(512, 30000, 300 * kKiB, 1500 * kKiB);
  const bool is_exact = GENERATE(false, true);
  const bool is_dedicated = GENERATE(false, true);
  CAPTURE(bytes, is_exact, is_dedicated);
  if (is_dedicated) memory.use_dedicated_allocations();
  const auto last = fill(bytes);
  driver.end_work_when_watched();
  if (is_exact) time().use_completed_only();
  work(kS);
  free(last);
  CHECK(driver.records == 1);
  work(kT);
  const uint64_t waits = stats::sums().pool_waits;
  CHECK(allocate(bytes) == last);
  CHECK(driver.synchronisations == 0);
  CHECK(driver.releases == 0);
  // Where streams can wait for the block's old work, the host does not.
  if ((bytes <= 30000 || is_dedicated) && !is_exact) CHECK(stats::sums().pool_waits == waits);
}

TEST_CASE_METHOD(CrowdedWorld, "a small block that was freed before the device was full is waited for") {
  const auto small = allocate(30000);
  time().use_completed_only();
  work(kS);
  free(small);
  CHECK(driver.records == 0);
  while (driver.refusals == 0) {
    driver::Address address = 0;
    memory.allocate(context, 2 * kMiB, &address);
  }
  fill(30000);
  CHECK(driver.synchronisations == 1);
}

TEST_CASE_METHOD(CrowdedWorld, "a device that refuses too large a request is not taken for full") {
  const auto block = allocate(30000);
  driver::Address address = 0;
  CHECK(memory.allocate(context, 2 * kDevice, &address) == driver::kOutOfMemory);
  work(kS);
  free(block);
  CHECK(driver.records == 0);
}

TEST_CASE_METHOD(CrowdedWorld, "a device that gives memory again is not full any more") {
  const auto block = fill(30000);
  driver.capacity += kDevice;
  allocate(kBlock);
  work(kS);
  free(block);
  CHECK(driver.records == 0);
}

TEST_CASE_METHOD(CrowdedWorld, "after a device was full and is free again, frees seal as seldom as before") {
  const bool has_events = GENERATE(false, true);
  driver.context_events = has_events;
  const auto seals_of_a_loop = [&] {
    const uint64_t before = driver.records + driver.synchronisations;
    for (int i = 0; i < 1000; ++i) {
      const auto block = allocate(30000);
      work(kS);
      free(block);
    }
    return driver.records + driver.synchronisations - before;
  };
  driver.end_work_when_watched();
  const uint64_t seals = seals_of_a_loop();
  std::vector<driver::Address> blocks;
  driver::Address address = 0;
  while (memory.allocate(context, 2 * kMiB, &address) == driver::kSuccess) blocks.push_back(address);
  for (const driver::Address block : blocks) free(block);
  CHECK(seals_of_a_loop() <= seals + 1);
}

TEST_CASE_METHOD(CrowdedWorld, "others are asked where what lay idle here was not enough") {
  const auto second = reinterpret_cast<driver::Context>(0x20);
  driver::Address block = 0;
  REQUIRE(memory.allocate(second, 40 * kMiB, &block) == driver::kSuccess);
  free(block);
  // Another process is faster.
  driver.on_release = [&] { driver.reserved += 40 * kMiB; };
  static CrowdedDriver* device = nullptr;
  device = &driver;
  memory.shortage().set_neighbours([](int, uint64_t) {
    device->reserved -= 40 * kMiB;
    return true;
  });
  allocate(50 * kMiB);
  CHECK(driver.releases == 1);
  memory.close(second);
}

TEST_CASE_METHOD(CrowdedWorld, "what others give back is enough together with what lies idle here") {
  const auto second = reinterpret_cast<driver::Context>(0x20);
  const bool is_ours = GENERATE(false, true);
  driver::Address block = 0;
  REQUIRE(memory.allocate(is_ours ? context : second, 20 * kMiB, &block) == driver::kSuccess);
  free(block);
  driver.reserved += 40 * kMiB;
  static CrowdedDriver* device = nullptr;
  device = &driver;
  memory.shortage().set_neighbours([](int, uint64_t) {
    device->reserved -= 40 * kMiB;
    return true;
  });
  allocate(62 * kMiB);
  CHECK(driver.releases == 1);
  memory.close(second);
}

TEST_CASE_METHOD(CrowdedWorld, "after a refusal the work before the last free is waited for, and no other") {
  const bool is_mapped = GENERATE(false, true);
  CAPTURE(is_mapped);
  if (is_mapped) use_mapped();
  const auto block = allocate(50 * kMiB);
  work(kS);
  free(block);
  REQUIRE(driver.records == 1);
  // Only what is done is handed out.
  time().use_completed_only();
  work(kS);
  driver.end_work_when_watched();
  CHECK(allocate(50 * kMiB) == block);
  CHECK(driver.synchronisations == 0);
}

// On a busy machine the looking thread may be kept from going on for longer than any free waits, so one round
// of many is enough.
TEST_CASE_METHOD(CrowdedWorld, "the seal of a large free is not lost to a thread that only looks") {
  constexpr int kRounds = 20;
  bool is_sealed = false;
  for (int round = 0; round < kRounds && !is_sealed; ++round) {
    const auto block = allocate(10 * kMiB);
    const auto other = allocate(10 * kMiB);
    work(kS);
    free(block);
    work(kS);
    std::atomic<bool> is_looking{false};
    std::atomic<bool> is_freeing{false};
    std::atomic<bool> has_freed{false};
    std::atomic<unsigned> turns{0};  // of the free, at the lock
    driver.on_query = [&] {
      is_looking = true;
      while (!is_freeing) std::this_thread::yield();
      while (!has_freed && turns < 3) std::this_thread::yield();
    };
    std::thread looks([&] { time().advance(); });
    while (!is_looking) std::this_thread::yield();
    const uint64_t records = driver.records;
    {
      const CountYields counts(&turns);
      is_freeing = true;
      free(other);
    }
    has_freed = true;
    is_sealed = driver.records == records + 1;
    looks.join();
    driver.on_query = [] {};
    driver.finish();
  }
  CHECK(is_sealed);
}

namespace {

struct UnwaitedWorld : CrowdedWorld {
  UnwaitedWorld() {
    driver.ordered_frees = true;
    driver.done_at_once = false;
  }
  // A block of which nothing but its place is wanted next.
  void free_a_used_block() {
    const auto block = allocate(40 * kMiB);
    work(kS);
    free(block);
  }
  void expect_no_wait_for_newer_work() {
    free_a_used_block();
    driver.finish();
    work(kS);
    allocate(50 * kMiB);
    CHECK(driver.ordered_releases == 1);
    CHECK(driver.releases == 0);
    CHECK(driver.synchronisations == 0);
  }
  void expect_nothing_before_its_work_is_done() {
    free_a_used_block();
    CHECK(memory.idle().release_everything(0, allocator::Effort::kDone) == 0);
    CHECK(driver.reserved == 40 * kMiB);
    driver.end_work_when_watched();
    CHECK(memory.idle().release_everything(0, allocator::Effort::kFrees) == 40 * kMiB);
    CHECK(driver.ordered_releases == 1);
    CHECK(driver.synchronisations == 0);
  }
};

}  // namespace

TEST_CASE_METHOD(UnwaitedWorld, "a segment whose work is done goes back without a wait for newer work") {
  expect_no_wait_for_newer_work();
}

TEST_CASE_METHOD(UnwaitedWorld,
                 "a dedicated block whose work is done goes back without a wait for newer work") {
  memory.use_dedicated_allocations();
  expect_no_wait_for_newer_work();
}

TEST_CASE_METHOD(UnwaitedWorld, "a segment does not go back without a wait before its work is done") {
  expect_nothing_before_its_work_is_done();
}

TEST_CASE_METHOD(UnwaitedWorld, "a dedicated block does not go back without a wait before its work is done") {
  memory.use_dedicated_allocations();
  expect_nothing_before_its_work_is_done();
}

TEST_CASE_METHOD(UnwaitedWorld, "a free that gives nothing back is not waited for") {
  const auto block = allocate(kMiB);
  allocate(kMiB);
  work(kS);
  free(block);
  driver.on_query = [&] {
    if (driver.queries > 100) driver.finish();
  };
  CHECK(memory.idle().release_everything(0, allocator::Effort::kFrees) == 0);
  CHECK(driver.queries < 10);
}

TEST_CASE_METHOD(UnwaitedWorld, "a free whose dedicated block is in use again is not waited for") {
  memory.use_dedicated_allocations();
  const auto block = allocate(4 * kMiB);
  work(kS);
  free(block);
  CHECK(allocate(4 * kMiB) == block);
  driver.on_query = [&] {
    if (driver.queries > 100) driver.finish();
  };
  CHECK(memory.idle().release_everything(0, allocator::Effort::kFrees) == 0);
  CHECK(driver.queries < 10);
}

TEST_CASE_METHOD(UnwaitedWorld, "a driver without frees in stream order is asked for a stream once") {
  driver.ordered_frees = false;
  driver.end_work_when_watched();
  for (uint64_t bytes = 40 * kMiB; bytes <= 60 * kMiB; bytes += 10 * kMiB) {
    const auto block = allocate(bytes);
    work(kS);
    free(block);
    work(kS);
  }
  CHECK(driver.streams == 1);
  CHECK(driver.releases == 2);
}
