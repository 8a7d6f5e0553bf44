// The size classes. Small blocks have eight classes per octave and are cut from slabs; above them every
// multiple of a granule, up to the largest size that thread caches keep, is a class whose blocks are one
// range each. Built once from the options, then immutable.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "pool/range.hpp"

namespace cupool::pool {

class SizeClasses {
 public:
  static constexpr size_t kMostSmall = 64;
  static constexpr size_t kMostClasses = kMostSmall + 64;
  static constexpr uint64_t kLargestSmall = 256 << 10;  // a block's slack must fit its tag
  static constexpr uint64_t kLargestMinimum = 16 << 10;
  static constexpr uint64_t kLargestKept = 1 << 20;

  // pre: min_block is a power of two, above kUnit and at most kLargestMinimum; small_limit at most
  // kLargestSmall.
  SizeClasses(uint64_t min_block, uint64_t small_limit, uint64_t round);

  // The class of a block of `bytes`, or kNotKept.
  unsigned of(uint64_t bytes) const {
    if (bytes > largest_kept_) return kNotKept;
    // Computes both without a branch: with mixed sizes a misprediction costs more than this.
    const unsigned small = small_[(std::min(bytes, small_limit_) + kUnit - 1) / kUnit];
    const unsigned range = static_cast<unsigned>(kFirstRange + (rounded(bytes) >> kGranuleShift));
    const unsigned is_range = bytes > small_limit_ ? ~0u : 0u;
    return small ^ ((small ^ range) & is_range);
  }
  bool is_small(unsigned size_class) const { return size_class < kMostSmall; }
  uint64_t bytes(unsigned size_class) const {
    return is_small(size_class) ? bytes_[size_class] : (size_class - kFirstRange) << kGranuleShift;
  }
  size_t small_classes() const { return count_; }
  // The size of a block that is a range by itself.
  uint64_t rounded(uint64_t bytes) const { return (bytes + round_ - 1) & ~(round_ - 1); }

 private:
  static constexpr size_t kFirstRange = kMostSmall - 1;  // the class of a range of zero granules

  std::array<uint8_t, kLargestSmall / kUnit + 1> small_{};
  std::array<uint64_t, kMostSmall> bytes_{};
  size_t count_ = 0;
  uint64_t small_limit_;
  uint64_t round_;
  uint64_t largest_kept_;  // the largest size that rounds to no more than kLargestKept
};

}  // namespace cupool::pool
