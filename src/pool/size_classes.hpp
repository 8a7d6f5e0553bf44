// The size classes. Small blocks have eight classes per octave and are cut from slabs; above them every
// multiple of a granule, up to the largest size that thread caches keep, is a class whose blocks are one
// range each. Where a pool has many blocks of one size, a fine class takes their place, cut from slabs as
// closely as the driver cuts its own: see fine_of(). Built once from the options; each thread has a copy, in
// which fine classes take effect when the thread hears of them (FineClasses). No lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pool/range.hpp"

namespace cupool::pool {

class SizeClasses {
 public:
  static constexpr size_t kMostSmall = 128;
  static constexpr size_t kMostClasses = kMostSmall + 64;
  static constexpr uint64_t kLargestSmall = 256 << 10;  // a block's slack must fit its tag
  static constexpr uint64_t kLargestMinimum = 16 << 10;
  static constexpr uint64_t kLargestKept = 1 << 20;

  // pre: min_block is a power of two, above kUnit and at most kLargestMinimum; small_limit at most
  // kLargestSmall.
  SizeClasses(uint64_t min_block, uint64_t small_limit, uint64_t round);

  // The class of a block of `bytes`, or kNotKept.
  unsigned of(uint64_t bytes) const {
    return bytes > largest_kept_ ? kNotKept : class_of_[(bytes + kUnit - 1) / kUnit];
  }
  bool is_small(unsigned size_class) const { return size_class < kMostSmall; }
  uint64_t bytes(unsigned size_class) const {
    return is_small(size_class) ? bytes_[size_class] : (size_class - kFirstRange) << kGranuleShift;
  }
  // The small classes, fine ones included.
  size_t small_classes() const { return count_; }
  // The size of a block that is a range by itself.
  uint64_t rounded(uint64_t bytes) const { return (bytes + round_ - 1) & ~(round_ - 1); }

  // The fine class for a block of `bytes`; kNotKept: its own class wastes no more than the driver would. Up
  // to 32 KiB fine classes are multiples of the smallest block; beyond, as many blocks share a slab of a page
  // as share a page of the driver's.
  unsigned fine_of(uint64_t bytes) const;
  // Fine classes take effect: all in this mask, of which bit n is the n-th.
  using Mask = std::array<uint64_t, 2>;
  void use_fine(const Mask& which);
  const Mask& fine_in_use() const { return in_use_; }
  size_t first_fine() const { return first_fine_; }

 private:
  static constexpr size_t kFirstRange = kMostSmall - 1;  // the class of a range of zero granules

  void add_fine(uint64_t above, uint64_t bytes);

  std::array<uint8_t, kLargestKept / kUnit + 1> class_of_{};
  std::array<uint32_t, kMostSmall> bytes_{};
  std::array<uint32_t, kMostSmall> above_{};  // fine classes: serve sizes above that
  size_t count_ = 0;
  size_t first_fine_ = 0;
  Mask in_use_{};
  uint64_t small_limit_;
  uint64_t round_;
  uint64_t largest_kept_;  // the largest size that rounds to no more than kLargestKept
};

// Which fine classes a pool uses: threads tell each other. They only ever come.
class FineClasses {
 public:
  void use(const SizeClasses& sizes, unsigned size_class) {
    const size_t bit = size_class - sizes.first_fine();
    words_[bit / 64].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_relaxed);
  }
  SizeClasses::Mask in_use() const {
    return {words_[0].load(std::memory_order_relaxed), words_[1].load(std::memory_order_relaxed)};
  }

 private:
  std::array<std::atomic<uint64_t>, 2> words_{};
};

}  // namespace cupool::pool
