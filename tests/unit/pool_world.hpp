// A process's memory for one test: a scripted driver, the pools over it, one context. The page map is the
// process's own, so the context is closed with the test, and two worlds must not live at once.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>

#include "fake_driver.hpp"
#include "fake_mapping.hpp"
#include "memory/hot_path.hpp"
#include "memory/memory.hpp"
#include "pool/page_map.hpp"

namespace cupool::test {

inline constexpr order::Lane kS{0x1000}, kT{0x2000}, kU{0x3000};

template <typename Driver>
struct BasicPoolWorld {
  Driver driver;
  FakeMapping mapping{driver};
  memory::Memory memory{&driver, &driver};
  driver::Context context = reinterpret_cast<driver::Context>(0x10);

  BasicPoolWorld() { driver.done_at_once = false; }
  ~BasicPoolWorld() { memory.close(context); }

  // pre: no memory yet.
  void use_mapped() { memory.pools().use_mapped(&mapping); }
  driver::Address allocate(uint64_t bytes) {
    driver::Address address = 0;
    REQUIRE(memory.allocate(context, bytes, &address) == driver::kSuccess);
    return address;
  }
  void free(driver::Address address) { REQUIRE(memory.free(address) == memory::Freed::kDone); }
  // Of the context, made when the first memory is.
  order::Timeline& time() { return *memory.order().of(context); }
  static driver::Stream stream(order::Lane lane) { return reinterpret_cast<driver::Stream>(lane); }
  void work(order::Lane lane) {
    if (!time().before_submit(lane, stream(lane))) FAIL("a submission was forbidden");
    time().after_submit(lane);
  }
  pool::Pool& pool() { return *memory.pools().pool_of(context); }
  uint64_t reserved() { return pool().ranges().bytes().reserved(); }

  // Every record agrees with every other: ranges tile segments without gaps, free neighbours are merged, the
  // page map names each range where it starts and each slab in all its granules, and the sums are right.
  void check_records() {
    uint64_t all = 0;
    uint64_t idle = 0;
    uint64_t in_idle_segments = 0;
    const uint64_t told_in_idle_segments = pool().ranges().bytes().idle();
    Guard hold(pool().ranges().lock());
    for (const pool::Segment* segment = pool().ranges().first_segment(); segment != nullptr;
         segment = segment->next) {
      all += segment->bytes;
      if (segment->next != nullptr) REQUIRE(segment->next->prev == segment);
      driver::Address at = segment->start;
      const pool::Range* before = nullptr;
      uint32_t taken = 0;
      for (const pool::Range* range = segment->first; range != nullptr; range = range->after) {
        REQUIRE(range->start == at);
        REQUIRE(range->bytes > 0);
        REQUIRE(range->bytes % pool::kGranule == 0);
        REQUIRE(range->before == before);
        REQUIRE(range->segment == segment);
        REQUIRE(range->pool == &pool());
        REQUIRE(pool::page_map.find(at)->range == range);
        uint64_t unused = 0;  // what a tainted segment has free serves nobody
        check_range(*range, before, segment->tainted ? &unused : &idle);
        taken += range->use == pool::Use::kTaken;
        before = range;
        at = range->end();
      }
      REQUIRE(at == segment->start + segment->bytes);
      if (segment->mapped) continue;
      REQUIRE(segment->taken == taken);
      if (taken == 0 && !segment->tainted) in_idle_segments += segment->bytes;
    }
    REQUIRE(all == pool().ranges().bytes().reserved());
    REQUIRE(idle == pool().ranges().bytes().free());
    REQUIRE(in_idle_segments == told_in_idle_segments);
    REQUIRE(driver.reserved >= all);
  }

 private:
  static void check_range(const pool::Range& range, const pool::Range* before, uint64_t* idle) {
    const pool::Slab* slab = range.slab.load();
    const bool is_idle = range.use == pool::Use::kFree || range.use == pool::Use::kPending;
    if (is_idle) *idle += range.bytes;
    if (range.use == pool::Use::kFree && before != nullptr) REQUIRE(before->use != pool::Use::kFree);
    if (is_idle) REQUIRE(range.tag.load() == 0);
    if (is_idle) REQUIRE(slab == nullptr);
    for (driver::Address at = range.start + pool::kGranule; at < range.end(); at += pool::kGranule) {
      if (pool::page_map.find(at) != slab) FAIL("the page map is wrong inside a range");
    }
    if (slab == nullptr) return;
    REQUIRE(slab->range == &range);
    uint32_t idle_blocks = 0;
    for (uint32_t i = 0; i < slab->blocks; ++i) {
      const bool bit = (slab->free_bits[i / 64] >> (i % 64) & 1) != 0;
      idle_blocks += bit;
      if (bit && slab->tags[i].load() != 0) FAIL("a block in the slab is held by the application");
    }
    REQUIRE(idle_blocks == slab->free_blocks);
    REQUIRE(slab->free_blocks < slab->blocks);
  }
};
using PoolWorld = BasicPoolWorld<FakeDriver>;

}  // namespace cupool::test
