// The tables of sizes, built once for a pool: eight steps an octave, and the fine classes between them.
#include "pool/size_classes.hpp"

#include <algorithm>

namespace cupool::pool {

namespace {
constexpr uint64_t kFineLimit = 32 << 10;  // up to here fine classes are multiples of the smallest block
constexpr uint64_t kFewest = 3;            // blocks that share a page: two are multiples of a granule
constexpr uint64_t kDriverUnit = 512;
constexpr uint64_t kMostSlack = kAskedApart - 2;

uint64_t shared_by(uint64_t blocks) { return kPageBytes / blocks / kDriverUnit * kDriverUnit; }
}  // namespace

SizeClasses::SizeClasses(uint64_t min_block, uint64_t small_limit, uint64_t round)
    : small_limit_(std::max(small_limit, min_block)), round_(std::max(round, kGranule)) {
  constexpr size_t kMostCoarse = 64;
  uint64_t size = 0;
  while (size < small_limit_ && count_ < kMostCoarse) {
    // Eight steps an octave, none smaller than the smallest block.
    uint64_t octave = min_block;
    while (octave * 2 <= size) octave *= 2;
    size += std::max(min_block, octave / 8);
    bytes_[count_++] = static_cast<uint32_t>(size);
  }
  small_limit_ = bytes_[count_ - 1];
  largest_kept_ = std::max(small_limit_, kLargestKept & ~(round_ - 1));
  size_t size_class = 0;
  class_of_[0] = static_cast<uint8_t>(kNotKept);
  for (size_t unit = 1; unit * kUnit <= largest_kept_; ++unit) {
    const uint64_t bytes = unit * kUnit;
    while (bytes <= small_limit_ && bytes_[size_class] < bytes) ++size_class;
    class_of_[unit] = static_cast<uint8_t>(
        bytes <= small_limit_ ? size_class : kFirstRange + (rounded(bytes) >> kGranuleShift));
  }
  first_fine_ = count_;
  for (size = min_block; size <= std::min(kFineLimit, small_limit_); size += min_block)
    add_fine(size - min_block, size);
  // Who rounds to more than a granule wants more than a close fit.
  if (round_ != kGranule) return;
  for (uint64_t blocks = kPageBytes / kFineLimit - 1; blocks >= kFewest; --blocks)
    add_fine(shared_by(blocks + 1), shared_by(blocks));
}

// Of sizes above the one and up to the other, but for those that the class they have already serves as well.
void SizeClasses::add_fine(uint64_t above, uint64_t bytes) {
  if (count_ == kMostSmall || bytes > largest_kept_) return;
  while (above < bytes && this->bytes(of(above + 1)) <= bytes) above = this->bytes(of(above + 1));
  above = std::max(above, bytes - std::min(bytes, kMostSlack));
  if (above >= bytes) return;
  above_[count_] = static_cast<uint32_t>(above);
  bytes_[count_++] = static_cast<uint32_t>(bytes);
}

unsigned SizeClasses::fine_of(uint64_t bytes) const {
  for (size_t fine = first_fine_; fine < count_; ++fine) {
    if (bytes > above_[fine] && bytes <= bytes_[fine]) return static_cast<unsigned>(fine);
  }
  return kNotKept;
}

void SizeClasses::use_fine(const Mask& which) {
  if (which == in_use_) return;
  in_use_ = which;
  for (size_t fine = first_fine_; fine < count_; ++fine) {
    const size_t bit = fine - first_fine_;
    if ((which[bit / 64] >> (bit % 64) & 1) == 0) continue;
    for (uint64_t unit = above_[fine] / kUnit + 1; unit * kUnit <= bytes_[fine]; ++unit)
      class_of_[unit] = static_cast<uint8_t>(fine);
  }
}

}  // namespace cupool::pool
