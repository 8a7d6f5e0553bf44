// A process's memory in which segments are mapped, over a driver whose chunks are numbers. For the tests of
// what is mapped, moved and unmapped when.
#pragma once

#include <algorithm>

#include "pool_world.hpp"
#include "upstream/limit.hpp"

namespace cupool::test {

struct MappedWorld : PoolWorld {
  const uint64_t booked_before = upstream::Limit::booked(0);

  MappedWorld() { use_mapped(); }
  uint64_t booked() const { return upstream::Limit::booked(0) - booked_before; }
  // Nothing is in use any more, as far as the pool can know.
  void finish() {
    driver.finish();
    time().advance();
  }
  void wait() {
    const order::Epoch epoch = time().begin_wait(order::Lane::kMany);
    driver.finish();
    time().end_wait(epoch, true);
  }
  size_t segments() { return pool().ranges().figures().segments; }
  // What trim(0) would release, by a look at every block.
  uint64_t releasable() {
    uint64_t bytes = 0;
    Guard hold(pool().ranges().lock());
    for (const pool::Segment* segment = pool().ranges().first_segment(); segment != nullptr;
         segment = segment->next) {
      driver::Address start = segment->start;
      for (const pool::Range* range = segment->lowest(); range != nullptr; range = range->after) {
        const pool::BlockRecord& record = pool::record_of(*range);
        const bool is_held = std::any_of(record.tags, record.tags + record.blocks,
                                         [](const pool::Tag& tag) { return tag.load() != 0; });
        if (!is_held) continue;
        bytes += pool().segments().space().chunks_in(start, range->start - start).bytes;
        start = range->end();
      }
      bytes += pool().segments().space().chunks_in(start, segment->end() - start).bytes;
    }
    return bytes;
  }
};

}  // namespace cupool::test
