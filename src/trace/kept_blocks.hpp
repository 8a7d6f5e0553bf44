// The last blocks of a trace that is kept in memory (CUPOOL_TRACE_KEEP): a ring of whole blocks in pages of
// its own; the oldest make room for new ones. The caller's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/format.hpp"

namespace cupool::trace {

class KeptBlocks {
 public:
  // False: the host has no memory.
  bool begin(uint64_t bytes);
  // Whole blocks, one after the other.
  void put(const uint8_t* data, size_t bytes);
  // Calls f(block, bytes) for each, the oldest first; only from the oldest live set on, if there is one: what
  // is older cannot be told from what is missing.
  template <typename F>
  void for_each(F&& f) const {
    const uint64_t first = oldest_live_set();
    for (uint64_t at = first; at != head_;) at += visit(at, f);
  }
  void forget_after_fork() { *this = {}; }

 private:
  // A block does not go around the end of the memory: what is left there is skipped.
  template <typename F>
  uint64_t visit(uint64_t at, F&& f) const {
    const size_t place = at % bytes_;
    if (bytes_ - place < sizeof(BlockHead) || head_at(place).magic != kMagic) return bytes_ - place;
    const size_t size = sizeof(BlockHead) + head_at(place).bytes;
    f(memory_ + place, size);
    return size;
  }
  BlockHead head_at(size_t place) const;
  uint64_t oldest_live_set() const;
  void drop_until(uint64_t end);

  uint8_t* memory_ = nullptr;
  size_t bytes_ = 0;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace cupool::trace
