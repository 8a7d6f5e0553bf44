// The pool as its callers see it: what an allocation costs and where it comes from, what a free answers, what
// thread caches keep, and what other threads' ends and a context's end leave behind.
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;
using memory::Freed;

TEST_CASE_METHOD(PoolWorld,
                 "while no work is under way, a block freed is the next of its size, without a driver call") {
  const uint64_t bytes = GENERATE(as<uint64_t>{}, 1, 512, 5 * kKiB, 100 * kKiB, kMiB, 3 * kMiB, 64 * kMiB);
  CAPTURE(bytes);
  const auto first = allocate(bytes);
  work(kS);
  work(kT);
  REQUIRE(time().wait_for_all());
  const uint64_t before = driver.calls();
  for (int i = 0; i < 10; ++i) {
    free(first);
    REQUIRE(allocate(bytes) == first);
  }
  CHECK(driver.calls() == before);
}

TEST_CASE_METHOD(PoolWorld,
                 "while its stream works on, a large block freed is the next of its size, after a seal") {
  const uint64_t bytes = GENERATE(as<uint64_t>{}, kMiB, 3 * kMiB, 64 * kMiB);
  CAPTURE(bytes);
  const auto first = allocate(bytes);
  for (int i = 0; i < 10; ++i) {
    work(kS);
    const uint64_t before = driver.records;
    free(first);
    CHECK(driver.records == before + 1);
    REQUIRE(allocate(bytes) == first);
    CHECK(driver.records == before + 1);
  }
  work(kS);
  CHECK(driver.allocations == 1);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(PoolWorld, "every block starts on a multiple of 512 and is as long as it was asked for") {
  for (uint64_t bytes = 1; bytes < 40 * kMiB; bytes += bytes / 3 + 1) {
    const auto address = allocate(bytes);
    CHECK(address % 512 == 0);
    memory::BlockInfo held;
    REQUIRE(memory.find(address + bytes - 1, &held));
    CHECK(held.start == address);
    CHECK(held.bytes == bytes);
    CHECK_FALSE(memory.find(address + bytes, &held));
  }
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "a size that no address space holds is refused as the driver refuses it") {
  driver::Address address = 0;
  CHECK(memory.allocate(context, uint64_t{1} << 50, &address) == driver::kOutOfMemory);
  CHECK(memory.allocate(context, ~uint64_t{0}, &address) == driver::kOutOfMemory);
  CHECK(memory.allocate(context, ~uint64_t{0} - kMiB, &address) == driver::kOutOfMemory);
  allocate(512);
}

// ---- What a free answers.

TEST_CASE_METHOD(PoolWorld, "an address is freed once, and only where its block starts") {
  for (const uint64_t bytes : {uint64_t{512}, 20 * kKiB, 600 * kKiB, 8 * kMiB}) {
    const auto address = allocate(bytes);
    for (const uint64_t inside : {uint64_t{1}, uint64_t{256}, uint64_t{511}, bytes / 2, bytes - 1}) {
      CHECK(memory.free(address + inside) == Freed::kNotLive);
    }
    CHECK(memory.free(address) == Freed::kDone);
    CHECK(memory.free(address) == Freed::kNotLive);
  }
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "an address that is not ours is left to the driver") {
  allocate(512);
  CHECK(memory.free(0x1000) == Freed::kNotOurs);
  CHECK(memory.free(~uint64_t{0}) == Freed::kNotOurs);
  CHECK(memory.free(uint64_t{1} << 49) == Freed::kNotOurs);
  CHECK_FALSE(memory.owns(0x1000));
}

TEST_CASE_METHOD(PoolWorld, "an address of ours outside of any block belongs to none, also between blocks") {
  const auto address = allocate(512);
  CHECK(memory.owns(address + 4 * kKiB));
  CHECK(memory.free(address + 512) == Freed::kNotLive);
  CHECK(memory.free(address + kMiB) == Freed::kNotLive);
  memory::BlockInfo held;
  CHECK_FALSE(memory.find(address + kMiB, &held));
}

// ---- Time.

TEST_CASE_METHOD(PoolWorld, "what is freed is not handed out before it is sealed, or its work is over") {
  for (const uint64_t bytes : {uint64_t{512}, 100 * kKiB}) {
    const auto first = allocate(bytes);
    work(kS);
    free(first);
    CHECK(driver.records == 0);
    const auto second = allocate(bytes);
    CHECK(second != first);
    time().seal_in_free();
    driver.finish();
    time().advance();
    work(kS);
    work(kT);
    std::set<driver::Address> seen;
    for (int i = 0; i < 200; ++i) seen.insert(allocate(bytes));
    CHECK(seen.count(first) == 1);
    CHECK(seen.size() == 200);
    // Nobody waits for what is over.
    work(kU);
    CHECK(driver.waits == 0);
    REQUIRE(time().wait_for_all());
    for (const auto address : seen) free(address);
    free(second);
    driver.records = 0;
  }
}

TEST_CASE_METHOD(PoolWorld, "frees are sealed by count and by bytes, and in no other call") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 320; ++i) blocks.push_back(allocate(512));
  for (const auto block : blocks) {
    work(kS);
    free(block);
  }
  CHECK(driver.records == 10);
  blocks.clear();
  driver.records = 0;
  for (int i = 0; i < 40; ++i) blocks.push_back(allocate(100 * kKiB));
  for (const auto block : blocks) {
    work(kS);
    CHECK(driver.records <= 8);
    free(block);
  }
  // One for six of them: 512 KiB.
  CHECK(driver.records >= 6);
  const uint64_t before = driver.records;
  for (int i = 0; i < 100; ++i) {
    allocate(512);
    allocate(100 * kKiB);
    work(i % 2 == 0 ? kS : kT);
  }
  CHECK(driver.records == before);
}

TEST_CASE_METHOD(PoolWorld, "under many lanes sealed memory serves, and each stream waits for itself alone") {
  // So large that nothing is left over of its segment, which would come first.
  const auto first = allocate(64 * kMiB);
  work(kS);
  work(kT);
  free(first);
  CHECK(driver.records == 1);
  CHECK(allocate(64 * kMiB) == first);
  CHECK(driver.waits == 0);
  work(kS);
  CHECK(driver.waits == 1);
  work(kS);
  CHECK(driver.waits == 1);
  work(kU);
  CHECK(driver.waits == 2);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(PoolWorld, "no block is handed out twice when a thread keeps more than may be used yet") {
  // Blocks of one class fill the thread's shelf, none of them sealed, and a new slab is cut.
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(allocate(512));
  work(kS);
  work(kT);
  for (const auto address : blocks) free(address);
  std::set<driver::Address> held;
  for (int i = 0; i < 500; ++i) REQUIRE(held.insert(allocate(512)).second);
  driver.finish();
  time().wait_for_all();
  for (int i = 0; i < 500; ++i) REQUIRE(held.insert(allocate(512)).second);
  check_records();
}

TEST_CASE_METHOD(PoolWorld,
                 "under many lanes memory stays bounded, and neither the host nor a context waits") {
  driver.capacity = 64 * kGiB;
  for (int i = 0; i < 200; ++i) {
    const auto address = allocate(8 * kMiB);
    work(kS);
    work(kT);
    free(address);
  }
  CHECK(driver.waits > 0);
  CHECK(driver.waits <= 400);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
  CHECK(driver.releases == 0);
  CHECK(reserved() <= 128 * kMiB);
}

TEST_CASE_METHOD(PoolWorld, "new memory makes no stream wait, and an allocation makes no call but for it") {
  allocate(8 * kMiB);
  work(kS);
  const uint64_t before = driver.calls();
  allocate(64 * kMiB);
  CHECK(driver.calls() == before + 1);
  CHECK(driver.allocations == 2);
  work(kT);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(PoolWorld,
                 "an allocation gives nothing back while work is under way that no free waited for") {
  free(allocate(64 * kMiB));
  work(kS);
  allocate(100 * kMiB);
  CHECK(driver.releases == 0);
  CHECK(driver.synchronisations == 0);
}

namespace {

// Tells which calls wait on the host: work ends only when one has asked so often that it must be waiting.
struct PatienceWorld : PoolWorld {
  static constexpr int kPatience = 50;
  int asked = 0;

  PatienceWorld() {
    driver.capacity = 64 * kGiB;
    driver.on_query = [this] {
      if (++asked == kPatience) driver.finish();
    };
  }
  bool waits(const std::function<void()>& call) {
    asked = 0;
    const uint64_t before = driver.synchronisations;
    call();
    return asked >= kPatience || driver.synchronisations != before;
  }
};

}  // namespace

TEST_CASE_METHOD(PatienceWorld, "where reuse is exact an allocation waits for no free, of whichever thread") {
  memory.order().use_completed_only("a test");
  const auto first = allocate(16 * kMiB);
  REQUIRE(16 * kMiB >= pool().settings().many_budget / 64);
  work(kS);
  const bool by_another = GENERATE(false, true);
  by_another ? std::thread([&] { free(first); }).join() : free(first);
  CHECK_FALSE(waits([&] { CHECK(allocate(16 * kMiB) != first); }));
  CHECK(driver.releases == 0);
  work(kT);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
  driver.finish();
  CHECK(allocate(16 * kMiB) == first);
}

TEST_CASE_METHOD(PatienceWorld,
                 "where reuse is exact a free waits each time the budget was freed, an allocation never") {
  memory.order().use_completed_only("a test");
  constexpr uint64_t kBlock = 10 * kMiB;
  allocate(kBlock);
  const uint64_t budget = pool().settings().many_budget;
  uint64_t freed = 0;
  int waited = 0;
  for (int i = 0; i < 300; ++i) {
    driver::Address address = 0;
    if (waits([&] { address = allocate(kBlock); })) FAIL("an allocation waited");
    work(i % 2 == 0 ? kS : kT);
    freed += kBlock;
    const bool is_due = freed > budget;
    if (waits([&] { free(address); }) != is_due) FAIL("a free waited out of turn, or not when it should");
    if (!is_due) continue;
    ++waited;
    freed = 0;
    // All work before it is over.
    CHECK(time().is_idle());
  }
  CHECK(waited >= 2);
  CHECK(reserved() <= budget / 4 * 5);
  CHECK_FALSE(time().is_leaning());
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(PatienceWorld, "where reuse is exact a free in a stream's order waits for nothing") {
  memory.order().use_completed_only("a test");
  constexpr uint64_t kBlock = 64 * kMiB;
  allocate(kBlock);
  for (uint64_t freed = 0; freed <= 2 * pool().settings().many_budget; freed += kBlock) {
    const auto address = allocate(kBlock);
    work(kS);
    CHECK_FALSE(waits([&] {
      REQUIRE(memory.free_on(address, reinterpret_cast<driver::Stream>(kS), nullptr) == memory::Freed::kDone);
    }));
  }
}

TEST_CASE_METHOD(PoolWorld,
                 "a block freed in a stream's order is free when that stream is there, whatever others do") {
  driver.done_at_once = false;
  const uint64_t bytes = GENERATE(4 * kKiB, 100 * kKiB, 3 * kMiB, 200 * kMiB);
  const auto address = allocate(bytes);
  const auto stream = reinterpret_cast<driver::Stream>(kT);
  work(kS);
  work(kT);
  REQUIRE(memory.free_on(address, stream, nullptr) == memory::Freed::kDone);
  CHECK(memory.free_on(address, stream, nullptr) == memory::Freed::kNotLive);
  CHECK(allocate(bytes) != address);
  driver.finish_on(stream);
  pool().caches().empty_all();
  std::vector<driver::Address> again;
  for (int i = 0; i < 40 && (again.empty() || again.back() != address); ++i) again.push_back(allocate(bytes));
  CHECK(again.back() == address);
  work(kS);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(PoolWorld, "nor does it go back to the driver before the work of its former life is done") {
  driver.ordered_frees = true;
  driver.done_at_once = false;
  const auto former = allocate(200 * kMiB);
  work(kS);
  free(former);
  REQUIRE(allocate(200 * kMiB) == former);
  // The new owner has given it no work, and its stream has waited for nothing.
  const auto stream = reinterpret_cast<driver::Stream>(kT);
  REQUIRE(memory.free_on(former, stream, nullptr) == memory::Freed::kDone);
  driver.finish_on(stream);
  pool().caches().empty_all();
  CHECK(pool().release_done() == 0);
  driver.finish();
  time().advance();
  CHECK(pool().release_done() != 0);
}

TEST_CASE_METHOD(PoolWorld, "without context events an allocation never waits, a free does when one is due") {
  driver.context_events = false;
  driver.capacity = 64 * kGiB;
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t before = driver.synchronisations;
    blocks.push_back(allocate(64 * kKiB));
    work(i % 2 == 0 ? kS : kT);
    CHECK(driver.synchronisations == before);
    free(blocks.back());
  }
  // Nor does it give anything back, for which the driver would wait.
  CHECK(driver.releases == 0);
  CHECK(driver.synchronisations > 0);
  CHECK(driver.synchronisations <= 30);
  CHECK(reserved() <= pool().settings().many_budget + 64 * kMiB);
  CHECK(driver.records == 0);
  CHECK(driver.orders == 0);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(PoolWorld, "memory that leaves the process waits until the work of its old life is over") {
  const auto first = allocate(4 * kMiB);
  work(kS);
  const order::Epoch stamp = time().open();
  free(first);
  REQUIRE(allocate(4 * kMiB) == first);
  REQUIRE(time().completed() < stamp);
  driver.on_query = [&, asked = 0]() mutable {
    if (++asked == 3) driver.finish();
  };
  memory.drain_before_export(first + 5);
  CHECK(time().completed() >= stamp);
  // What is not ours is not waited for.
  memory.drain_before_export(0x1234);
}

TEST_CASE_METHOD(PoolWorld,
                 "while a stream captures, what is sealed is handed out and the driver gives the rest") {
  const auto old = allocate(4 * kMiB);
  work(kS);
  free(old);
  memory.order().gate().begin_capture();
  const uint64_t before = driver.calls() - driver.allocations;
  CHECK(allocate(4 * kMiB) == old);
  work(kS);
  free(old);
  CHECK(allocate(4 * kMiB) != old);
  CHECK(driver.calls() - driver.allocations == before);
  memory.order().gate().end_capture();
}

// ---- Thread caches.

TEST_CASE_METHOD(PoolWorld, "what one thread frees another can use, however it was allocated") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(2048));
  std::thread([&] {
    for (const auto address : blocks) CHECK(memory.free(address) == Freed::kDone);
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
  pool::ThreadCache* const first = pool().caches().adopt();
  pool().caches().abandon(first);
  std::thread([&] { free(allocate(512)); }).join();
  CHECK(pool().caches().adopt() == first);
  pool().caches().abandon(first);
  // Nobody has to empty a cache for it.
  pool().release_free_segments(0);
  CHECK(reserved() == 0);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(PoolWorld, "threads that keep nothing are not looked at, however many there are") {
  pool::ThreadCaches& caches = (free(allocate(512)), pool().caches());
  std::vector<pool::ThreadCache*> others;
  for (int i = 0; i < 1000; ++i) others.push_back(caches.adopt());
  CHECK_FALSE(caches.are_empty());
  caches.empty_all();
  CHECK(caches.are_empty());
  for (pool::ThreadCache* const other : others) caches.abandon(other);
}

TEST_CASE_METHOD(PoolWorld,
                 "what a thread keeps after all were emptied is found when they are emptied again") {
  for (const uint64_t bytes : {uint64_t{512}, 20 * kKiB, 600 * kKiB, 8 * kMiB}) {
    for (int round = 0; round < 3; ++round) {
      // The second time it is kept without a search.
      for (int i = 0; i < 2; ++i) {
        const auto address = allocate(bytes);
        free(address);
        CHECK(allocate(bytes) == address);
        free(address);
      }
      CHECK_FALSE(pool().caches().are_empty());
      CHECK(pool().release_free_segments(0) == 0);
      pool().caches().empty_all();
      CHECK(pool().caches().are_empty());
      pool().release_free_segments(0);
      CHECK(reserved() == 0);
      check_records();
    }
  }
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
  while (memory.allocate(context, kMiB, &address) == driver::kSuccess) blocks.push_back(address);
  for (const auto block : blocks) free(block);
  // This thread keeps some of them still; the largest request takes all of them.
  const auto all = allocate(60 * kMiB);
  free(all);
  check_records();
}

// ---- Contexts.

// While a thread keeps a block, every segment is looked at; when none does, the lists say it.
TEST_CASE_METHOD(PoolWorld, "what could go back is the same whether threads keep blocks or not") {
  const bool is_mapped = GENERATE(false, true);
  CAPTURE(is_mapped);
  if (is_mapped) use_mapped();
  std::mt19937_64 random(1);
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (blocks.empty() || random() % 100 < 52) {
      blocks.push_back(allocate(random() % 2 == 0 ? random() % (8 * kMiB) + 1 : random() % 5000 + 1));
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      free(blocks.back());
      blocks.pop_back();
    }
    if (i % 10 != 0) continue;
    const driver::Address kept = allocate(512);
    free(kept);
    CHECK_FALSE(pool().caches().are_empty());
    const uint64_t looked_at = pool().segments().releasable_bytes();
    pool().caches().empty_all();
    CHECK(pool().caches().are_empty());
    CHECK(pool().segments().releasable_bytes() == looked_at);
    check_records();
  }
}

TEST_CASE_METHOD(PoolWorld, "a closed context's memory is unknown, and the same handle starts afresh") {
  const auto small = allocate(512);
  const auto large = allocate(8 * kMiB);
  free(allocate(512));
  memory.close(context);
  CHECK_FALSE(memory.owns(small));
  CHECK(memory.free(small) == Freed::kNotOurs);
  CHECK(memory.free(large) == Freed::kNotOurs);
  CHECK(memory.pools().pool_of(context) == nullptr);
  const auto again = allocate(512);
  CHECK(again != small);  // the driver still holds the old memory in this script
  check_records();
  free(again);
  CHECK(pool().caches().live_bytes() == 0);
}

TEST_CASE_METHOD(PoolWorld, "each context has memory of its own, and a free goes back to its pool") {
  const auto other = reinterpret_cast<driver::Context>(0x20);
  const auto first = allocate(512);
  driver::Address second = 0;
  REQUIRE(memory.allocate(other, 512, &second) == driver::kSuccess);
  CHECK(memory.pools().pool_of(other) != memory.pools().pool_of(context));
  free(second);
  free(first);
  CHECK(memory.pools().pool_of(other)->caches().live_bytes() == 0);
  CHECK(pool().caches().live_bytes() == 0);
  CHECK(memory.pools().pool_of(other)->release_everything() > 0);
  CHECK_FALSE(memory.owns(second));
  CHECK(memory.owns(first));
  memory.close(other);
}

TEST_CASE_METHOD(PoolWorld, "a fork child forgets all memory and can start afresh") {
  const auto address = allocate(512);
  memory.forget_after_fork();
  CHECK_FALSE(memory.owns(address));
  CHECK(memory.pools().pool_of(context) == nullptr);
  free(allocate(512));
  check_records();
}

// ---- Without a lock.

TEST_CASE_METHOD(PoolWorld,
                 "a place deep inside a large block is found without a lock once it was asked about") {
  if (GENERATE(false, true)) use_mapped();
  using enum pool::PageMap::Sight;
  const auto look = [](driver::Address at, uint64_t bytes) { return pool::page_map.look(at, bytes); };
  constexpr uint64_t kBlock = 16 * kMiB;
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(kBlock));
  memory::BlockInfo held;
  for (const driver::Address block : blocks) {
    for (driver::Address at = block; at < block + kBlock; at += kMiB + 4096) {
      REQUIRE(memory.find(at, &held));
      CHECK(look(at, 1) == kHeld);
      CHECK(look(at, block + kBlock - at) == kHeld);
      CHECK(look(at, block + kBlock - at + 1) == kMaybe);
    }
  }
  const driver::Address place = blocks[2] + 7 * kMiB;
  free(blocks[2]);
  CHECK(look(place, 1) == kMaybe);
  // What comes there next is answered for, and no more.
  pool().caches().empty_all();
  const driver::Address part = allocate(9 * kMiB);
  REQUIRE(part == blocks[2]);
  REQUIRE(memory.find(place, &held));
  CHECK(look(place, 2 * kMiB) == kHeld);
  CHECK(look(place, 2 * kMiB + 1) == kMaybe);
  free(part);
  const driver::Address low = allocate(5 * kMiB);
  const driver::Address high = allocate(5 * kMiB);
  REQUIRE(high + 5 * kMiB > place);
  CHECK(look(place, 5 * kMiB) == kMaybe);
  free(low);
  free(high);
}
