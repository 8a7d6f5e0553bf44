// Blocks in host memory, where the device has none left: when one is used again, how small ones share chunks,
// and what goes back.
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "mapped/spill.hpp"
#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constexpr uint64_t kStep = driver::kMappingStep;

struct SpillWorld : PoolWorld {
  FakeDriver host;
  FakeMapping host_mapping{host};
  mapped::Spill spill{driver, host_mapping, Size{uint64_t{4} << 30, false}};
  SpillWorld() { memory.shortage().use_spill(&spill); }
  ~SpillWorld() {
    memory.close(context);
    memory.shortage().use_spill(nullptr);
  }
  // From here on every block that needs more memory spills.
  void fill_device() {
    driver.capacity = 100 * kMiB;
    allocate(100 * kMiB);
  }
  std::vector<driver::Address> allocate_many(size_t count, uint64_t bytes) {
    std::vector<driver::Address> blocks;
    while (blocks.size() < count) blocks.push_back(allocate(bytes));
    return blocks;
  }
};

}  // namespace

TEST_CASE_METHOD(SpillWorld, "a block that spills among dedicated blocks is known and freed") {
  memory.use_dedicated_allocations();
  driver.capacity = 100 * kMiB;
  allocate(90 * kMiB);
  const driver::Address block = allocate(20 * kMiB);
  CHECK(memory.owns(block));
  free(block);
  memory.close(context);
  CHECK(host.reserved == 0);
}

TEST_CASE_METHOD(SpillWorld, "what would not fit in host memory either is refused without a wait") {
  fill_device();
  const auto block = allocate(20 * kMiB);
  work(kS);
  free(block);
  work(kS);
  driver::Address address = 0;
  CHECK(memory.allocate(context, 5000 * kMiB, &address) == driver::kOutOfMemory);
  CHECK(driver.synchronisations == 0);
  CHECK(host.reserved == 20 * kMiB);
}

TEST_CASE_METHOD(SpillWorld, "what spilled and is idle makes room for a larger block that spills") {
  driver.capacity = 10 * kMiB;
  free(allocate(3000 * kMiB));
  allocate(3500 * kMiB);
  CHECK(host.reserved == 3500 * kMiB);
}

// ---- Used again.

TEST_CASE_METHOD(SpillWorld, "what spilled and is done is used again without a wait for other work") {
  if (GENERATE(false, true)) memory.use_dedicated_allocations();
  fill_device();
  const driver::Address block = allocate(20 * kMiB);
  work(kS);
  free(block);
  driver.finish();
  work(kS);
  work(kT);
  const uint64_t waits = driver.synchronisations;
  CHECK(allocate(20 * kMiB) == block);
  CHECK(driver.synchronisations == waits);
  work(kT);
  CHECK(driver.waits + driver.orders == 0);
}

TEST_CASE_METHOD(SpillWorld, "work on what spilled and is used again waits for its old work") {
  fill_device();
  const driver::Address block = allocate(20 * kMiB);
  work(kS);
  work(kT);
  free(block);
  CHECK(allocate(20 * kMiB) == block);
  // On the host nobody waits: the device is full either way.
  CHECK(driver.synchronisations == 0);
  const uint64_t waits = driver.waits;
  work(kU);
  CHECK(driver.waits == waits + 1);
}

TEST_CASE_METHOD(SpillWorld, "memory that the device has goes before what spilled and is idle") {
  if (GENERATE(false, true)) memory.use_dedicated_allocations();
  driver.capacity = 100 * kMiB;
  const driver::Address large = allocate(90 * kMiB);
  const driver::Address block = allocate(20 * kMiB);
  free(block);
  free(large);
  driver.capacity = 120 * kMiB;
  CHECK(allocate(20 * kMiB) != block);
}

// ---- Small blocks.

TEST_CASE_METHOD(SpillWorld, "small blocks that spill share their host memory") {
  fill_device();
  const uint64_t bytes = GENERATE(1, 512, 700, 10 * kKiB, 100 * kKiB, 600 * kKiB, 1024 * kKiB);
  const std::vector<driver::Address> blocks = allocate_many(64, bytes);
  const std::set<driver::Address> apart(blocks.begin(), blocks.end());
  CHECK(apart.size() == 64);
  CHECK(host.reserved <= std::max(kStep, 64 * 2 * bytes));
  driver::Address last = 0;
  for (const driver::Address block : apart) {
    CHECK(block % 512 == 0);
    CHECK(block >= last);
    last = block + bytes;
    memory::BlockInfo held;
    REQUIRE(memory.find(block + bytes - 1, &held));
    CHECK(held.start == block);
    CHECK(held.bytes == bytes);
    CHECK(held.mapped);
    CHECK((!memory.find(block + bytes, &held) || held.start == block + bytes));
    CHECK(host_mapping.has_access(block, bytes, 0));
    CHECK(memory.chunk_at(block).bytes == kStep);
  }
  for (const driver::Address block : blocks) free(block);
  memory.idle().trim(0);
  CHECK(host.reserved == 0);
  CHECK(host_mapping.reserved.empty());
}

TEST_CASE_METHOD(SpillWorld, "a block above 1 MiB that spills begins at a chunk of its own") {
  fill_device();
  for (int i = 0; i < 3; ++i) CHECK(allocate(kMiB + 1) % kStep == 0);
  CHECK(host.reserved == 3 * kStep);
}

TEST_CASE_METHOD(SpillWorld, "a chunk goes back with the last of its blocks, and not before") {
  fill_device();
  const std::vector<driver::Address> blocks = allocate_many(5, kMiB);
  CHECK(host.reserved == 3 * kStep);
  free(blocks[0]);
  free(blocks[2]);
  free(blocks[3]);
  memory.idle().trim(0);
  CHECK(host.reserved == 2 * kStep);
  CHECK(host_mapping.has_access(blocks[1], kMiB, 0));
  // The free slots serve before another chunk does.
  allocate_many(2, kMiB);
  CHECK(host.reserved == 2 * kStep);
  allocate(kMiB);
  CHECK(host.reserved == 3 * kStep);
}

TEST_CASE_METHOD(SpillWorld, "the limit of what spills counts host memory, however small the blocks are") {
  mapped::Spill little{driver, host_mapping, Size{2 * kStep, false}};
  memory.shortage().use_spill(&little);
  fill_device();
  allocate_many(4, kMiB);
  driver::Address out = 0;
  CHECK(memory.allocate(context, kMiB, &out) == driver::kOutOfMemory);
  CHECK(memory.allocate(context, 700, &out) == driver::kOutOfMemory);
  memory.close(context);
}

TEST_CASE_METHOD(SpillWorld, "no block comes where another process may still have one open") {
  fill_device();
  const driver::Address shared = allocate(10 * kKiB);
  const driver::Address beside = allocate(10 * kKiB);
  REQUIRE(memory.taint(shared, memory::Taint::kExported));
  free(shared);
  CHECK(host.reserved == kStep);
  for (const driver::Address block : allocate_many(200, 10 * kKiB))
    CHECK(memory.chunk_at(block).start != memory.chunk_at(beside).start);
  free(beside);
  memory.idle().trim(0);
  CHECK_FALSE(host_mapping.has_access(beside, 1, 0));
}

TEST_CASE_METHOD(SpillWorld,
                 "another device has access to small blocks from before and after it was let in") {
  fill_device();
  const driver::Address before = allocate(10 * kKiB);
  memory.set_access(context, {reinterpret_cast<driver::Context>(0x100), 3}, true);
  const driver::Address beside = allocate(10 * kKiB);
  const driver::Address after = allocate(100 * kKiB);
  for (const driver::Address block : {before, beside, after}) CHECK(host_mapping.has_access(block, 1, 3));
}

TEST_CASE_METHOD(SpillWorld, "a chunk that the driver does not unmap serves on") {
  fill_device();
  const driver::Address block = allocate(10 * kKiB);
  free(block);
  host_mapping.fail_unmap = driver::kUnknown;
  CHECK(memory.idle().trim(0) == 0);
  CHECK(allocate(10 * kKiB) == block);
  const driver::Address beside = allocate(10 * kKiB);
  CHECK(beside != block);
  CHECK(host.reserved == kStep);
  host_mapping.fail_unmap = driver::kSuccess;
  free(block);
  free(beside);
  memory.idle().trim(0);
  CHECK(host.reserved == 0);
}

TEST_CASE_METHOD(SpillWorld, "the driver is asked once whether a device can map") {
  fill_device();
  allocate_many(5, 3 * kMiB);
  allocate_many(5, 100 * kKiB);
  CHECK(host_mapping.questions == 1);
}

TEST_CASE_METHOD(SpillWorld, "nothing spills where the device cannot map") {
  host_mapping.able = false;
  fill_device();
  driver::Address out = 0;
  CHECK(memory.allocate(context, kMiB, &out) == driver::kOutOfMemory);
  CHECK(memory.allocate(context, kMiB, &out) == driver::kOutOfMemory);
  CHECK(host_mapping.creates == 0);
}

TEST_CASE_METHOD(SpillWorld, "threads that spill and give back at once never share a block") {
  constexpr int kThreads = 4;
  fill_device();
  const uint64_t sizes[] = {700, 10 * kKiB, 700 * kKiB, kMiB, 3 * kMiB};
  std::mutex lock;
  std::map<driver::Address, uint64_t> all;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<driver::Address> mine;
      for (int i = 0; i < 300; ++i) {
        const uint64_t bytes = sizes[random() % std::size(sizes)];
        driver::Address address = 0;
        if (random() % 2 == 0 && memory.allocate(context, bytes, &address) == driver::kSuccess) {
          const std::lock_guard<std::mutex> hold(lock);
          const auto next = all.lower_bound(address);
          if (next != all.end() && next->first < address + bytes) abort();
          if (next != all.begin() && std::prev(next)->first + std::prev(next)->second > address) abort();
          all[address] = bytes;
          mine.push_back(address);
        } else if (!mine.empty()) {
          {
            const std::lock_guard<std::mutex> hold(lock);
            all.erase(mine.back());
          }
          memory.free(mine.back());
          mine.pop_back();
        }
        if (random() % 20 == 0) memory.idle().trim(0);
      }
      for (const driver::Address block : mine) {
        {
          const std::lock_guard<std::mutex> hold(lock);
          all.erase(block);
        }
        memory.free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  memory.idle().trim(0);
  CHECK(host.reserved == 0);
  CHECK(host_mapping.reserved.empty());
}

TEST_CASE_METHOD(SpillWorld, "another process that needs memory of the device is not given what spilled") {
  allocate(30 * kMiB);
  driver.capacity = driver.reserved;
  const driver::Address spilled = allocate(20 * kMiB);
  REQUIRE(spill.chunk_at(spilled).bytes != 0);
  free(spilled);
  time().end_wait(time().begin_wait(order::Lane::kMany), true);
  CHECK(memory.idle().release_for_others(0, kMiB, [] { return true; }) == 0);
  CHECK(spill.chunk_at(spilled).bytes != 0);
}
