// The table of small sizes, built once for a pool: eight steps an octave. Immutable afterwards, so no lock.
#include "pool/size_classes.hpp"

#include <algorithm>

namespace cupool::pool {

SizeClasses::SizeClasses(uint64_t min_block, uint64_t small_limit, uint64_t round)
    : small_limit_(std::max(small_limit, min_block)), round_(std::max(round, kGranule)) {
  uint64_t size = 0;
  while (size < small_limit_ && count_ < kMostSmall) {
    // Eight steps an octave, none smaller than the smallest block.
    uint64_t octave = min_block;
    while (octave * 2 <= size) octave *= 2;
    size += std::max(min_block, octave / 8);
    bytes_[count_++] = size;
  }
  small_limit_ = bytes_[count_ - 1];
  largest_kept_ = std::max(small_limit_, kLargestKept & ~(round_ - 1));
  size_t size_class = 0;
  small_[0] = static_cast<uint8_t>(kNotKept);
  for (size_t unit = 1; unit * kUnit <= small_limit_; ++unit) {
    while (bytes_[size_class] < unit * kUnit) ++size_class;
    small_[unit] = static_cast<uint8_t>(size_class);
  }
}

}  // namespace cupool::pool
