// The pool as its callers see it: what an allocation costs and where it comes from, what a free answers, what
// thread caches keep, and what other threads' ends and a context's end leave behind.
#include <set>
#include <thread>
#include <vector>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;
using pool::Freed;

TEST_CASE_METHOD(PoolWorld, "a block freed and asked for again is the same block, without a driver call") {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{512}, 5 * kKiB, 100 * kKiB, kMiB, 3 * kMiB, 64 * kMiB}) {
    const auto first = allocate(bytes);
    work(kS);
    REQUIRE(pools.order().request_grant());
    free(first);
    const uint64_t before = driver.calls();
    CHECK(allocate(bytes) == first);
    CHECK(driver.calls() == before);
    free(first);
  }
}

TEST_CASE_METHOD(PoolWorld, "every block starts on a multiple of 512 and is as long as it was asked for") {
  for (uint64_t bytes = 1; bytes < 40 * kMiB; bytes += bytes / 3 + 1) {
    const auto address = allocate(bytes);
    CHECK(address % 512 == 0);
    pool::Pool::Held held;
    REQUIRE(pools.find(address + bytes - 1, &held));
    CHECK(held.start == address);
    CHECK(held.bytes == bytes);
    CHECK_FALSE(pools.find(address + bytes, &held));
  }
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "a size that no address space holds is refused as the driver refuses it") {
  driver::Address address = 0;
  CHECK(pools.allocate(context, uint64_t{1} << 50, &address) == driver::kOutOfMemory);
  CHECK(pools.allocate(context, ~uint64_t{0}, &address) == driver::kOutOfMemory);
  CHECK(pools.allocate(context, ~uint64_t{0} - kMiB, &address) == driver::kOutOfMemory);
  allocate(512);
}

// ---- What a free answers.

TEST_CASE_METHOD(PoolWorld, "an address is freed once, and only where its block starts") {
  for (const uint64_t bytes : {uint64_t{512}, 20 * kKiB, 600 * kKiB, 8 * kMiB}) {
    const auto address = allocate(bytes);
    for (const uint64_t inside : {uint64_t{1}, uint64_t{256}, uint64_t{511}, bytes / 2, bytes - 1}) {
      CHECK(pools.free(address + inside) == Freed::kNobodys);
    }
    CHECK(pools.free(address) == Freed::kDone);
    CHECK(pools.free(address) == Freed::kNobodys);
  }
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "an address that is not ours is for the driver") {
  allocate(512);
  CHECK(pools.free(0x1000) == Freed::kNotOurs);
  CHECK(pools.free(~uint64_t{0}) == Freed::kNotOurs);
  CHECK(pools.free(uint64_t{1} << 49) == Freed::kNotOurs);
  CHECK_FALSE(pools.owns(0x1000));
}

TEST_CASE_METHOD(PoolWorld, "memory of ours that nobody holds is nobody's, between blocks too") {
  const auto address = allocate(512);
  CHECK(pools.owns(address + 4 * kKiB));
  CHECK(pools.free(address + 512) == Freed::kNobodys);
  CHECK(pools.free(address + kMiB) == Freed::kNobodys);
  pool::Pool::Held held;
  CHECK_FALSE(pools.find(address + kMiB, &held));
}

// ---- Time.

TEST_CASE_METHOD(PoolWorld, "under many lanes memory comes back when its seal is done, not before") {
  for (const uint64_t bytes : {uint64_t{512}, 100 * kKiB, 4 * kMiB}) {
    const auto first = allocate(bytes);
    work(kS);
    work(kT);
    free(first);
    pools.order().advance(true);
    const auto second = allocate(bytes);
    CHECK(second != first);
    driver.finish();
    pools.order().advance(false);
    std::set<driver::Address> seen;
    for (int i = 0; i < 200; ++i) seen.insert(allocate(bytes));
    CHECK(seen.count(first) == 1);
    CHECK(seen.size() == 200);
    for (const auto address : seen) free(address);
    free(second);
    pools.order().wait_for_all();
  }
}

TEST_CASE_METHOD(PoolWorld, "no block is handed out twice when a thread keeps more than may be used yet") {
  // Blocks of one class fill the thread's shelf, none of them safe, and a new slab is cut.
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(allocate(512));
  work(kS);
  work(kT);
  for (const auto address : blocks) free(address);
  std::set<driver::Address> held;
  for (int i = 0; i < 500; ++i) REQUIRE(held.insert(allocate(512)).second);
  driver.finish();
  pools.order().wait_for_all();
  for (int i = 0; i < 500; ++i) REQUIRE(held.insert(allocate(512)).second);
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "under many lanes the budget bounds what lies idle, then a barrier serves") {
  driver.capacity = 64 * kGiB;
  for (int i = 0; i < 200; ++i) {
    const auto address = allocate(8 * kMiB);
    work(kS);
    work(kT);
    free(address);
  }
  CHECK(driver.orders > 0);
  CHECK(reserved() <= pool().settings().many_budget + 64 * kMiB);
}

TEST_CASE_METHOD(PoolWorld,
                 "while a stream captures, what is safe is handed out and the driver gives the rest") {
  const auto old = allocate(4 * kMiB);
  free(old);
  pools.order().wait_for_all();
  pools.order().begin_capture();
  const uint64_t before = driver.records + driver.orders + driver.queries + driver.synchronisations;
  CHECK(allocate(4 * kMiB) == old);
  free(old);
  CHECK(allocate(4 * kMiB) != old);
  CHECK(driver.records + driver.orders + driver.queries + driver.synchronisations == before);
  CHECK(driver.releases == 0);
  pools.order().end_capture();
}

// ---- Thread caches.

TEST_CASE_METHOD(PoolWorld, "what one thread frees another can use, however it was allocated") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(2048));
  std::thread([&] {
    for (const auto address : blocks) CHECK(pools.free(address) == Freed::kDone);
  }).join();
  const uint64_t before = driver.calls();
  std::set<driver::Address> again;
  for (int i = 0; i < 1000; ++i) again.insert(allocate(2048));
  CHECK(again.size() == 1000);
  CHECK(driver.calls() == before);
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "a thread that ends gives back what it kept, and its cache is used again") {
  std::thread([&] {
    for (int i = 0; i < 40; ++i) free(allocate(512));
    free(allocate(300 * kKiB));
  }).join();
  pool::ThreadCache* const first = pool().adopt_cache();
  pool().abandon_cache(first);
  std::thread([&] { free(allocate(512)); }).join();
  CHECK(pool().adopt_cache() == first);
  pool().abandon_cache(first);
  // Nobody has to empty a cache for it.
  pool().release_free_segments(0);
  CHECK(reserved() == 0);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(PoolWorld, "a producer and a consumer do not grow memory without bound") {
  for (int round = 0; round < 50; ++round) {
    std::vector<driver::Address> blocks;
    for (int i = 0; i < 500; ++i) blocks.push_back(allocate(4096));
    std::thread([&] {
      for (const auto address : blocks) free(address);
    }).join();
  }
  CHECK(reserved() <= 8 * kMiB);
}

TEST_CASE_METHOD(PoolWorld, "memory that other threads keep is found before more is taken") {
  driver.capacity = 64 * kMiB;
  std::vector<driver::Address> blocks;
  driver::Address address = 0;
  while (pools.allocate(context, kMiB, &address) == driver::kSuccess) blocks.push_back(address);
  for (const auto block : blocks) free(block);
  // This thread keeps some of them still; the largest request takes all of them.
  const auto all = allocate(60 * kMiB);
  free(all);
  check_records();
}

// ---- Contexts.

TEST_CASE_METHOD(PoolWorld, "a closed context's memory is nobody's, and the same handle starts anew") {
  const auto small = allocate(512);
  const auto large = allocate(8 * kMiB);
  free(allocate(512));
  pools.close(context);
  CHECK_FALSE(pools.owns(small));
  CHECK(pools.free(small) == Freed::kNotOurs);
  CHECK(pools.free(large) == Freed::kNotOurs);
  CHECK(pools.pool_of(context) == nullptr);
  const auto again = allocate(512);
  CHECK(again != small);  // the driver still holds the old memory in this script
  check_records();
  free(again);
  CHECK(pool().live_bytes() == 0);
}

TEST_CASE_METHOD(PoolWorld, "each context has memory of its own, and a free goes back to its pool") {
  const auto other = reinterpret_cast<driver::Context>(0x20);
  const auto first = allocate(512);
  driver::Address second = 0;
  REQUIRE(pools.allocate(other, 512, &second) == driver::kSuccess);
  CHECK(pools.pool_of(other) != pools.pool_of(context));
  free(second);
  free(first);
  CHECK(pools.pool_of(other)->live_bytes() == 0);
  CHECK(pool().live_bytes() == 0);
  CHECK(pools.pool_of(other)->release_everything() > 0);
  CHECK_FALSE(pools.owns(second));
  CHECK(pools.owns(first));
  pools.close(other);
}

TEST_CASE_METHOD(PoolWorld, "a forked child forgets all memory and can start anew") {
  const auto address = allocate(512);
  pools.forget_after_fork();
  CHECK_FALSE(pools.owns(address));
  CHECK(pools.pool_of(context) == nullptr);
  free(allocate(512));
  check_records();
}
