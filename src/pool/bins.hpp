// Free ranges by size, for best fit in a few steps, however many there are: 32 bins of one granule each, then
// 32 bins an octave, with a bitmap of the non-empty ones; each bin is a tree. Owns no memory: trees are made
// of the ranges' own fields. The caller's lock protects it.
#pragma once

#include <array>
#include <bit>

#include "pool/range_tree.hpp"

namespace cupool::pool {

// By size, then by address.
struct BySize {
  static TimedNode& node(Range& range) { return range.by_size; }
  static bool less(const Range& a, const Range& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.start < b.start;
  }
};

class Bins {
 public:
  constexpr Bins() = default;

  void insert(Range* range) {
    const size_t bin = bin_of(range->bytes);
    trees_[bin].insert(range);
    filled_[bin / 64] |= uint64_t{1} << (bin % 64);
  }
  void remove(Range* range) {
    const size_t bin = bin_of(range->bytes);
    trees_[bin].remove(range);
    if (trees_[bin].is_empty()) filled_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
  }
  // The smallest range of at least `bytes`, and at most `most`, whose stamp is at most `limit`; ties go to
  // the lowest address.
  Range* best_fit(uint64_t bytes, uint64_t most, Epoch limit) const;
  uint64_t largest() const;
  // The newest stamp in here; 0: there is none.
  Epoch latest() const;
  // Calls `f(Range*)` for the ranges of at least `bytes`, the smallest first, until it returns true. It may
  // remove that one, no other.
  template <typename F>
  void visit(uint64_t bytes, F&& f) const {
    const auto is_below = [bytes](const Range& range) { return range.bytes < bytes; };
    for (size_t bin = next_bin(bin_of(bytes)); bin < kBins; bin = next_bin(bin + 1)) {
      if (trees_[bin].visit(is_below, f)) return;
    }
  }

 private:
  static constexpr unsigned kSubBits = 5;
  static constexpr size_t kSub = size_t{1} << kSubBits;
  static constexpr size_t kBins = kSub * 32;

  static size_t bin_of(uint64_t bytes) {
    const uint64_t granules = bytes >> kGranuleShift;
    if (granules < kSub) return granules;
    const unsigned octave = static_cast<unsigned>(std::bit_width(granules)) - 1;
    const uint64_t sub = (granules >> (octave - kSubBits)) & (kSub - 1);
    const size_t bin = (octave - kSubBits + 1) * kSub + sub;
    return bin < kBins ? bin : kBins - 1;
  }
  size_t next_bin(size_t from) const;  // the first non-empty one, or kBins

  std::array<uint64_t, kBins / 64> filled_{};
  std::array<RangeTree<BySize>, kBins> trees_{};
};

}  // namespace cupool::pool
