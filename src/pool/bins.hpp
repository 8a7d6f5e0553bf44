// Free ranges by size, for best fit in a few steps: 32 bins of one granule each, then 32 bins an octave, with
// a bitmap of the non-empty ones. Owns no memory: ranges are linked through their own fields. The caller's
// lock protects it.
#pragma once

#include <array>
#include <bit>

#include "pool/range.hpp"

namespace cupool::pool {

class Bins {
 public:
  constexpr Bins() = default;

  void insert(Range* range) {
    const size_t bin = bin_of(range->bytes);
    RangeLink& head = heads_[bin];
    if (head.next == nullptr) [[unlikely]]
      head.prev = head.next = &head;
    range->bin = static_cast<uint16_t>(bin);
    range->insert_after(&head);
    filled_[bin / 64] |= uint64_t{1} << (bin % 64);
  }
  void remove(Range* range) {
    range->unlink();
    // If it was the last, the head was on both sides.
    const uint64_t emptied = range->prev == range->next ? 1 : 0;
    filled_[range->bin / 64] &= ~(emptied << (range->bin % 64));
  }
  // The smallest range of at least `bytes`, and at most `most`, whose stamp is at most `limit`; ties go to
  // the lowest address.
  Range* best_fit(uint64_t bytes, uint64_t most, Epoch limit) const;
  uint64_t largest() const;
  // Calls `f(Range*)` for the ranges of at least about `bytes`, roughly the smallest first, until it returns
  // true. It may remove that one, no other.
  template <typename F>
  void visit(uint64_t bytes, F&& f) const {
    for (size_t bin = next_bin(bin_of(bytes)); bin < kBins; bin = next_bin(bin + 1)) {
      for (RangeLink* link = heads_[bin].next; link != &heads_[bin]; link = link->next) {
        if (f(static_cast<Range*>(link))) return;
      }
    }
  }

 private:
  static constexpr unsigned kSubBits = 5;
  static constexpr size_t kSub = size_t{1} << kSubBits;
  static constexpr size_t kBins = kSub * 32;
  // Bounds the search within one bin: a good fit is good enough.
  static constexpr int kMostCompared = 64;

  static size_t bin_of(uint64_t bytes) {
    const uint64_t granules = bytes >> kGranuleShift;
    if (granules < kSub) return granules;
    const unsigned octave = static_cast<unsigned>(std::bit_width(granules)) - 1;
    const uint64_t sub = (granules >> (octave - kSubBits)) & (kSub - 1);
    const size_t bin = (octave - kSubBits + 1) * kSub + sub;
    return bin < kBins ? bin : kBins - 1;
  }
  Range* best_in(size_t bin, uint64_t bytes, uint64_t most, Epoch limit) const;
  size_t next_bin(size_t from) const;  // the first non-empty one, or kBins

  std::array<uint64_t, kBins / 64> filled_{};
  std::array<RangeLink, kBins> heads_{};
};

}  // namespace cupool::pool
