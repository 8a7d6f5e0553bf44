// Mapped segments: what is mapped and unmapped when, over a driver whose chunks are numbers. The rule above
// all: memory is unmapped only when all work on it is done, because unmapping does not wait.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "mapped_world.hpp"
#include "order/graph_launches.hpp"
#include "other_thread.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constexpr uint64_t kStep = driver::kMappingStep;
// Contexts of other devices.
const auto kGuest = reinterpret_cast<driver::Context>(0x100);
const auto kOtherGuest = reinterpret_cast<driver::Context>(0x200);

}  // namespace

TEST_CASE_METHOD(MappedWorld,
                 "memory is not unmapped before all work on it is done, however it is asked for") {
  const driver::Address block = allocate(8 * kMiB);
  work(kS);
  free(block);
  time().seal_in_free();
  const uint64_t taken = driver.reserved;
  // Sealed: a block of one lane is handed out again, but it may still be written.
  CHECK(time().cheap() > time().completed());
  memory.idle().trim(0);
  pool().release_free_segments(0);
  pool().release_idle({});
  pool().release_idle({.on_own_thread = true});
  pool().tenancy().set_max_cached(0);
  pool().trim_to_limit();
  CHECK(driver.reserved == taken);
  CHECK(mapping.unmaps == 0);
  finish();
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
  check_records();
}

TEST_CASE_METHOD(MappedWorld, "half of the blocks that fill a device, freed, make room for one as large") {
  driver.capacity = uint64_t{4} << 30;
  // As the driver counts them: in whole steps.
  for (const uint64_t bytes : {2 * kMiB, 4 * kMiB, 3'000'000ul, 5'000 * kKiB, 20'000'000ul, 100 * kMiB}) {
    const uint64_t in_steps = round_up(bytes, kStep);
    const uint64_t blocks = driver.capacity / in_steps;
    std::vector<driver::Address> kept;
    std::vector<driver::Address> freed;
    for (uint64_t i = 0; i < blocks; ++i) (i % 2 == 0 ? kept : freed).push_back(allocate(bytes));
    for (const driver::Address one : freed) free(one);
    // The first ones, with little of the device, may lie closer.
    const driver::Address large = allocate(freed.size() * in_steps / 32 * 31);
    CHECK(large != 0);
    check_records();
    free(large);
    for (const driver::Address one : kept) free(one);
    memory.idle().trim(0);
    CHECK(driver.reserved == 0);
  }
}

TEST_CASE_METHOD(MappedWorld, "memory does not move for a block that the device has no room for") {
  driver.capacity = 256 * kMiB;
  std::vector<driver::Address> kept;
  std::vector<driver::Address> freed;
  for (int i = 0; i < 32; ++i) (i % 2 == 0 ? kept : freed).push_back(allocate(8 * kMiB));
  for (const driver::Address one : freed) free(one);
  const uint64_t unmaps = mapping.unmaps;
  driver::Address large = 0;
  CHECK(memory.allocate(context, 130 * kMiB, &large) == driver::kOutOfMemory);
  CHECK(mapping.unmaps == unmaps);
  CHECK(memory.allocate(context, 128 * kMiB, &large) == driver::kSuccess);
}

TEST_CASE_METHOD(MappedWorld,
                 "nothing is asked to wait, on host or device, when memory goes back under work") {
  const driver::Address idle = allocate(8 * kMiB);
  const driver::Address busy = allocate(8 * kMiB);
  free(idle);
  work(kS);
  work(kT);
  const uint64_t synchronisations = driver.synchronisations;
  const uint64_t waits = driver.waits + driver.orders;
  memory.idle().trim(0);
  CHECK(driver.reserved == 8 * kMiB);
  CHECK(driver.synchronisations == synchronisations);
  CHECK(driver.waits + driver.orders == waits);
  free(busy);
}

TEST_CASE_METHOD(MappedWorld, "where memory was refused the pool waits for work, as the driver's free does") {
  const driver::Address low = allocate(8 * kMiB);
  const driver::Address high = allocate(8 * kMiB);
  work(kS);
  work(kT);
  free(low);
  free(high);
  driver.end_work_when_watched();
  CHECK(memory.idle().release_everything() == 16 * kMiB);
  CHECK(driver.synchronisations == 0);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(MappedWorld, "where memory was refused the pool waits for all work if frees sealed none") {
  const driver::Address block = allocate(8 * kMiB);
  work(kS);
  // The stream can have no event.
  driver.fail_record = driver::kUnknown;
  REQUIRE(memory.free_on(block, reinterpret_cast<driver::Stream>(kS), nullptr) == memory::Freed::kDone);
  driver.fail_record = driver::kSuccess;
  CHECK(memory.idle().release_everything() == 8 * kMiB);
  CHECK(driver.synchronisations == 1);
  CHECK(driver.reserved == 0);
  // Nothing to gain: nothing is waited for.
  allocate(8 * kMiB);
  work(kS);
  CHECK(memory.idle().release_everything() == 0);
  CHECK(driver.synchronisations == 1);
}

TEST_CASE_METHOD(MappedWorld, "a stream's free beside a graph's launch there has its record all the same") {
  const driver::Address block = allocate(8 * kMiB);
  work(kS);
  const uint64_t before = driver.records;
  const order::GraphLaunches::Launch under_way(order::GraphLaunches::Place(kS, context));
  REQUIRE(memory.free_on(block, reinterpret_cast<driver::Stream>(kS), nullptr) == memory::Freed::kDone);
  // Else there is one of the context, and the block waits for all work.
  CHECK(driver.records == before);
  CHECK(driver.stream_records == 1);
}

TEST_CASE_METHOD(MappedWorld, "holes go back wherever they lie, and the rest stays where it is") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocate(8 * kMiB));
  for (int i = 1; i < 16; i += 2) free(blocks[static_cast<size_t>(i)]);
  memory.idle().trim(0);
  CHECK(driver.reserved <= 9 * 8 * kMiB);
  check_records();
  for (int i = 0; i < 16; i += 2) {
    memory::BlockInfo held;
    REQUIRE(memory.find(blocks[static_cast<size_t>(i)] + 8 * kMiB - 1, &held));
    CHECK(held.start == blocks[static_cast<size_t>(i)]);
    CHECK(held.mapped);
  }
  for (int i = 1; i < 16; i += 2) CHECK_FALSE(memory.owns(blocks[static_cast<size_t>(i)] + 4 * kMiB));
}

TEST_CASE_METHOD(MappedWorld, "free memory merges across what was mapped at different times") {
  const driver::Address low = allocate(20 * kMiB);
  const driver::Address high = allocate(20 * kMiB);
  free(low);
  free(high);
  const uint64_t maps = mapping.maps;
  allocate(40 * kMiB);
  CHECK(mapping.maps == maps);
  CHECK(segments() == 1);
  check_records();
}

TEST_CASE_METHOD(MappedWorld, "a segment grows at its end by no more than is missing") {
  allocate(20 * kMiB);
  free(allocate(20 * kMiB));
  pool().caches().empty_all();
  allocate(30 * kMiB);
  CHECK(driver.reserved == 50 * kMiB);
  CHECK(mapping.unmaps == 0);
  CHECK(segments() == 1);
  check_records();
}

TEST_CASE_METHOD(MappedWorld, "a large block is made of the holes that others left") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(allocate(8 * kMiB));
  for (size_t i = 0; i < 64; i += 2) free(blocks[i]);
  pool().caches().empty_all();
  const uint64_t before = driver.reserved;
  allocate(200 * kMiB);
  CHECK(driver.reserved <= before);
  CHECK(driver.peak <= before);
  check_records();
}

TEST_CASE_METHOD(MappedWorld, "idle memory goes back although the program goes on") {
  const driver::Address idle = allocate(32 * kMiB);
  const driver::Address busy = allocate(8 * kMiB);
  free(idle);
  pool().caches().empty_all();
  work(kS);
  const uint64_t period = 2;
  for (int look = 0; look < 2; ++look) {
    pool().release_idle({.for_ms = period, .only_quiet = true, .on_own_thread = true});
    if (look == 0) CHECK(driver.reserved == 40 * kMiB);
    const uint64_t begin = now_ns();
    while (now_ns() - begin < 2 * period * 1'000'000) std::this_thread::yield();
    work(kS);
  }
  pool().release_idle({.for_ms = period, .only_quiet = true, .on_own_thread = true});
  CHECK(driver.reserved == 8 * kMiB);
  free(busy);
}

TEST_CASE_METHOD(MappedWorld, "mapped memory outlives its context until the driver has ended that") {
  allocate(8 * kMiB);
  const uint64_t ending = memory.begin_end(context);
  CHECK(mapping.unmaps == 0);
  CHECK(booked() == 0);
  memory.closed(context, ending, true);
  CHECK(driver.reserved == 0);
  CHECK(mapping.mapped.empty());
  CHECK(mapping.reserved.empty());
}

TEST_CASE_METHOD(MappedWorld, "where the driver refuses to end a context its blocks stay mapped") {
  const driver::Address block = allocate(8 * kMiB);
  memory.closed(context, memory.begin_end(context), false);
  CHECK(mapping.has_access(block, 8 * kMiB, 0));
  // The same handle, the same device: another pool serves it.
  free(allocate(8 * kMiB));
}

TEST_CASE_METHOD(MappedWorld, "a context that ends while another allocates does not take its memory along") {
  const auto another = reinterpret_cast<driver::Context>(0x20);
  driver::Address other = 0;
  allocate(8 * kMiB);
  REQUIRE(memory.allocate(another, 8 * kMiB, &other) == driver::kSuccess);
  memory.close(context);
  CHECK(mapping.has_access(other, 8 * kMiB, 0));
  memory.close(another);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(MappedWorld, "another device has access to what was mapped before and after it was let in") {
  const driver::Address before = allocate(8 * kMiB);
  CHECK_FALSE(mapping.has_access(before, 8 * kMiB, 3));
  memory.pools().set_access(context, {kGuest, 3}, true);
  const driver::Address after = allocate(64 * kMiB);
  CHECK(mapping.has_access(before, 8 * kMiB, 3));
  CHECK(mapping.has_access(after, 64 * kMiB, 3));
  memory.pools().set_access(context, {kGuest, 3}, false);
  const driver::Address last = allocate(64 * kMiB);
  for (const driver::Address block : {before, after, last}) {
    CHECK(mapping.has_access(block, 8 * kMiB, 0));
    CHECK_FALSE(mapping.has_access(block, kStep, 3));
  }
}

TEST_CASE_METHOD(MappedWorld, "access that is asked for before there is memory holds for the first block") {
  memory.pools().set_access(context, {kGuest, 3}, true);
  CHECK(mapping.has_access(allocate(8 * kMiB), 8 * kMiB, 3));
}

TEST_CASE_METHOD(MappedWorld, "a run that cannot be made in full leaves nothing behind") {
  allocate(8 * kMiB);
  const uint64_t taken = driver.reserved;
  driver::Address out = 0;
  driver.capacity = taken + 20 * kMiB;
  CHECK(memory.allocate(context, 64 * kMiB, &out) == driver::kOutOfMemory);
  CHECK(driver.reserved == taken);
  CHECK(booked() == taken);
  driver.capacity = uint64_t{1} << 40;
  mapping.fail_map = driver::kOutOfMemory;
  CHECK(memory.allocate(context, 64 * kMiB, &out) == driver::kOutOfMemory);
  mapping.fail_map = driver::kSuccess;
  CHECK(driver.reserved == taken);
  CHECK(booked() == taken);
  allocate(64 * kMiB);
  check_records();
}

TEST_CASE_METHOD(MappedWorld, "a request for more than is free does not end mapping, however it is refused") {
  allocate(8 * kMiB);
  mapping.fail_create = driver::kNotSupported;
  driver.unreported = driver.capacity;
  driver::Address out = 0;
  CHECK(memory.allocate(context, 64 * kMiB, &out) == driver::kOutOfMemory);
  mapping.fail_create = driver::kSuccess;
  driver.unreported = 0;
  CHECK(pool().segments().can_move());
}

TEST_CASE_METHOD(MappedWorld, "a driver that stops mapping serves segments of its own") {
  const driver::Address block = allocate(8 * kMiB);
  mapping.fail_allow = driver::kNotSupported;
  const driver::Address other = allocate(64 * kMiB);
  memory::BlockInfo held;
  REQUIRE(memory.find(other, &held));
  CHECK_FALSE(held.mapped);
  CHECK(driver.allocations == 1);
  free(block);
  free(other);
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
  CHECK(booked() == 0);
}

TEST_CASE_METHOD(MappedWorld, "a device that cannot map gets segments of the driver's") {
  mapping.able = false;
  allocate(8 * kMiB);
  CHECK(mapping.reservations == 0);
  CHECK(driver.allocations == 1);
}

TEST_CASE_METHOD(MappedWorld, "after mapping was given up both kinds serve, and both go back") {
  const driver::Address block = allocate(8 * kMiB);
  memory.pools().stop_mapping();
  const driver::Address other = allocate(64 * kMiB);
  CHECK(driver.allocations == 1);
  free(block);
  free(other);
  check_records();
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(MappedWorld, "memory that the driver does not unmap serves on") {
  const driver::Address block = allocate(32 * kMiB);
  free(block);
  mapping.fail_unmap = driver::kUnknown;
  CHECK(memory.idle().trim(0) == 0);
  check_records();
  CHECK(booked() == driver.reserved);
  const uint64_t maps = mapping.maps;
  CHECK(allocate(32 * kMiB) == block);
  CHECK(mapping.maps == maps);
}

TEST_CASE_METHOD(MappedWorld, "addresses come to as many as are needed, a reservation at a time") {
  mapping.most_reserved = 64 * kMiB;
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(24 * kMiB));
  CHECK(mapping.reservations == 4);
  for (const driver::Address block : blocks) free(block);
  check_records();
}

TEST_CASE_METHOD(MappedWorld,
                 "of a tainted block only its chunks are lost to the pool, until its work is done") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(8 * kMiB));
  CHECK(segments() == 1);
  REQUIRE(memory.taint(blocks[3], memory::Taint::kDmaBuf));
  CHECK(segments() == 3);
  work(kS);
  for (const driver::Address block : blocks) free(block);
  check_records();
  CHECK(mapping.unmaps == 0);
  // The neighbours serve on.
  const uint64_t maps = mapping.maps;
  wait();
  allocate(24 * kMiB);
  CHECK(mapping.maps == maps);
  memory.idle().release_everything();
  CHECK_FALSE(memory.owns(blocks[3]));
  CHECK(driver.reserved == 24 * kMiB);
}

TEST_CASE_METHOD(MappedWorld, "a tainted block takes along live neighbours that share a chunk with it") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(allocate(3 * kMiB + 100 * kKiB));
  REQUIRE(memory.taint(blocks[20], memory::Taint::kDmaBuf));
  check_records();
  for (const driver::Address block : blocks) free(block);
  wait();
  memory.idle().release_everything();
  CHECK(driver.reserved == 0);
  CHECK(booked() == 0);
}

TEST_CASE_METHOD(MappedWorld, "free memory as the program is told is what could be had") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(8 * kMiB));
  for (size_t i = 0; i < 8; i += 2) free(blocks[i]);
  const uint64_t told = memory.idle().releasable_bytes(0);
  const uint64_t before = driver.reserved;
  memory.idle().trim(0);
  CHECK(before - driver.reserved == told);
}

// ---- At random, and at once.

namespace {

// Every block is written until its free, and that work goes on until everything is finished.
class Watched : public MappedWorld {
 public:
  Watched() {
    mapping.on_unmap = [this](driver::Address start, uint64_t bytes) {
      // Out of memory the pool waits for everything.
      if (driver.synchronisations != synchronised) unfinished.clear();
      synchronised = driver.synchronisations;
      if (touches(live, start, bytes)) FAIL_CHECK("live memory was unmapped");
      if (touches(unfinished, start, bytes)) FAIL_CHECK("memory with unfinished work was unmapped");
    };
  }

 protected:
  using Blocks = std::map<driver::Address, uint64_t>;
  Blocks live;
  Blocks unfinished;
  uint64_t synchronised = 0;

  static bool touches(const Blocks& blocks, driver::Address start, uint64_t bytes) {
    const auto next = blocks.lower_bound(start + bytes);
    if (next == blocks.begin()) return false;
    const auto& [address, size] = *std::prev(next);
    return address + size > start;
  }
  void take(uint64_t bytes) {
    driver::Address address = 0;
    if (memory.allocate(context, bytes, &address) != driver::kSuccess) return;
    if (touches(live, address, bytes)) FAIL("a block was given out twice");
    live[address] = bytes;
  }
  void give(std::mt19937& random, bool with_work) {
    if (live.empty()) return;
    auto at = live.begin();
    std::advance(at, random() % live.size());
    if (with_work) work(random() % 2 == 0 ? kS : kT);
    // What lay under it is as unfinished as it is.
    if (with_work) unfinished[at->first] = std::max(unfinished[at->first], at->second);
    const driver::Address address = at->first;
    live.erase(at);
    free(address);
  }
};

}  // namespace

TEST_CASE_METHOD(Watched,
                 "whatever is allocated, freed, used and given back, only finished memory is unmapped") {
  std::mt19937 random(4711);
  const uint64_t sizes[] = {700, 20 * kKiB, 300 * kKiB, 3 * kMiB, 9 * kMiB, 40 * kMiB, 130 * kMiB};
  driver.capacity = uint64_t{2} << 30;
  take(700);
  for (int i = 0; i < 6000; ++i) {
    const unsigned what = random() % 100;
    if (what < 45) {
      take(sizes[random() % std::size(sizes)] + random() % 4096);
    } else if (what < 90) {
      give(random, random() % 3 != 0);
    } else if (what < 94) {
      unfinished.clear();
      finish();
    } else if (what < 97) {
      memory.idle().trim(random() % 2 == 0 ? 0 : 64 * kMiB);
    } else if (what < 98) {
      pool().release_idle({.on_own_thread = random() % 2 == 0});
    } else if (what < 99) {
      time().seal_in_free();
    } else {
      unfinished.clear();
      wait();
    }
    if (i % 50 == 0) check_records();
    if (i % 10 == 0) CHECK(memory.idle().releasable_bytes(0) == releasable());
  }
  CHECK(mapping.unmaps > 100);
  while (!live.empty()) give(random, false);
  unfinished.clear();
  wait();
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
  CHECK(booked() == 0);
}

TEST_CASE_METHOD(MappedWorld, "threads that allocate, free and give back at once share what is mapped") {
  constexpr int kThreads = 4;
  const uint64_t sizes[] = {20 * kKiB, 3 * kMiB, 9 * kMiB, 24 * kMiB};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<driver::Address> mine;
      for (int i = 0; i < 400; ++i) {
        driver::Address address = 0;
        if (random() % 2 == 0 && memory.allocate(context, sizes[random() % 4], &address) == driver::kSuccess)
          mine.push_back(address);
        if (random() % 2 == 0 && !mine.empty()) {
          const size_t at = random() % mine.size();
          memory.free(mine[at]);
          mine.erase(mine.begin() + static_cast<long>(at));
        }
        if (random() % 40 == 0) memory.idle().trim(0);
        memory::BlockInfo held;
        if (!mine.empty() && !memory.find(mine[random() % mine.size()], &held)) abort();
      }
      for (const driver::Address address : mine) memory.free(address);
    });
  }
  for (std::thread& thread : threads) thread.join();
  check_records();
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
  CHECK(booked() == 0);
}

// ---- Refusals.

TEST_CASE_METHOD(MappedWorld, "runs of two reservations that lie side by side stay two") {
  mapping.most_reserved = 64 * kMiB;
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(30 * kMiB));
  CHECK(mapping.reservations > 1);
  for (const driver::Address block : blocks) free(block);
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(MappedWorld, "without addresses the driver's allocations serve") {
  mapping.most_reserved = 0;
  allocate(8 * kMiB);
  CHECK(mapping.creates == 0);
}

TEST_CASE_METHOD(MappedWorld, "a refused allocation is tried once if nothing comes back meanwhile") {
  driver.capacity = 1024 * kMiB;
  allocate(21 * kMiB + 512 * kKiB);  // leaves a free range behind it
  const uint64_t waits = driver.synchronisations;
  driver::Address out = 0;
  CHECK(memory.allocate(context, 1100 * kMiB, &out) == driver::kOutOfMemory);
  CHECK(driver.synchronisations - waits <= 1);
}

TEST_CASE_METHOD(MappedWorld, "an allocation that fits is not refused because another gathers in vain") {
  driver.capacity = 64 * kMiB;
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(8 * kMiB));
  for (const size_t i : {0u, 2u, 4u}) free(blocks[i]);
  driver::Status answer = driver::kOutOfMemory;
  std::optional<OtherThread> other;
  mapping.on_create = [&, first = std::this_thread::get_id()] {
    if (std::this_thread::get_id() != first || other) return;
    // It gives up now, if it does not wait for us.
    other.emplace([&] {
      driver::Address fits = 0;
      answer = memory.allocate(context, 16 * kMiB, &fits);
    });
    other->stands();
  };
  driver::Address none = 0;
  CHECK(memory.allocate(context, 40 * kMiB, &none) == driver::kOutOfMemory);
  REQUIRE(other);
  other->join();
  CHECK(answer == driver::kSuccess);
}

TEST_CASE_METHOD(MappedWorld, "a refused allocation does not take what there is before it fails") {
  driver.capacity = 1024 * kMiB;
  allocate(22 * kMiB);
  const uint64_t creates = mapping.creates;
  driver::Address out = 0;
  CHECK(memory.allocate(context, 1020 * kMiB, &out) == driver::kOutOfMemory);
  CHECK(mapping.creates == creates);
}

TEST_CASE_METHOD(MappedWorld, "what the driver keeps in pools of its own can be had") {
  driver.capacity = 1024 * kMiB;
  driver.unreported = 600 * kMiB;
  allocate(800 * kMiB);
}

TEST_CASE_METHOD(MappedWorld, "a tainted block whose work was pending at its free makes room later") {
  driver.end_work_when_watched();
  driver.capacity = 1024 * kMiB;
  const driver::Address block = allocate(600 * kMiB);
  REQUIRE(memory.taint(block, memory::Taint::kDmaBuf));
  work(kS);
  free(block);
  allocate(600 * kMiB);
}

TEST_CASE_METHOD(MappedWorld, "a device keeps its access while one of its contexts wants it") {
  allocate(8 * kMiB);
  memory.set_access(context, {kGuest, 1}, true);
  memory.set_access(context, {kOtherGuest, 1}, true);
  CHECK(memory.set_access(context, {kGuest, 1}, false));
  CHECK(mapping.mapped.begin()->second.devices.count(1) == 1);
  CHECK_FALSE(memory.set_access(context, {kOtherGuest, 1}, false));
  CHECK(mapping.mapped.begin()->second.devices.count(1) == 0);
}

TEST_CASE_METHOD(MappedWorld, "a context keeps the access it asks for while another of its device gives up") {
  const driver::Address block = allocate(8 * kMiB);
  memory.set_access(context, {kGuest, 1}, true);
  bool is_first = true;
  mapping.on_allow = [&](driver::Mapping::Access access) {
    if (access != driver::Mapping::Access::kNone || !std::exchange(is_first, false)) return;
    std::thread([&] { memory.set_access(context, {kOtherGuest, 1}, true); }).join();
  };
  SECTION("by its own will") { memory.set_access(context, {kGuest, 1}, false); }
  SECTION("because it ends") { memory.closed(kGuest, memory.begin_end(kGuest), true); }
  CHECK_FALSE(is_first);
  CHECK(memory.pools().peers_of(context) == std::vector<int>{1});
  CHECK(mapping.has_access(block, 8 * kMiB, 1));
  CHECK(mapping.has_access(allocate(64 * kMiB), 64 * kMiB, 1));
}

TEST_CASE_METHOD(MappedWorld, "the access of a context ends with it, and not before") {
  const driver::Address block = allocate(8 * kMiB);
  memory.set_access(context, {kGuest, 1}, true);
  memory.set_access(context, {kOtherGuest, 1}, true);
  uint64_t ending = memory.begin_end(kGuest);
  CHECK(memory.closed(kGuest, ending, true).empty());
  CHECK(mapping.has_access(block, 8 * kMiB, 1));
  ending = memory.begin_end(kOtherGuest);
  CHECK(mapping.has_access(block, 8 * kMiB, 1));
  const auto lost = memory.closed(kOtherGuest, ending, true);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0] == std::pair{context, 1});
  CHECK_FALSE(mapping.has_access(block, kStep, 1));
  CHECK_FALSE(mapping.has_access(allocate(64 * kMiB), kStep, 1));
  CHECK(memory.pools().peers_of(context).empty());
}

TEST_CASE_METHOD(MappedWorld,
                 "a context that the driver refuses to end keeps its access, and lets others in") {
  const driver::Address block = allocate(8 * kMiB);
  memory.set_access(context, {kGuest, 1}, true);
  CHECK(memory.closed(kGuest, memory.begin_end(kGuest), false).empty());
  CHECK(mapping.has_access(block, 8 * kMiB, 1));
  CHECK(memory.closed(context, memory.begin_end(context), false).empty());
  CHECK(mapping.has_access(allocate(8 * kMiB), 8 * kMiB, 1));
}

TEST_CASE_METHOD(MappedWorld, "threads that ask for the first mapped memory together share one reservation") {
  std::optional<OtherThread> other;
  driver::Address second = 0;
  mapping.on_reserve = [&] {
    if (other) return;
    other.emplace([&] { memory.allocate(context, 3 * kMiB, &second); });
    CHECK(other->stands());
  };
  const driver::Address first = allocate(3 * kMiB);
  other->join();
  CHECK(mapping.reservations == 1);
  CHECK(first != second);
  free(first);
  free(second);
}
