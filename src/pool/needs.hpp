// What the live blocks of pools would need of the driver if they did not share segments: for the settings
// that an out-of-memory report names. Owns nothing; each pool adds its ranges under its range lock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "pool/range.hpp"
#include "pool/slab.hpp"
#include "report/shortage.hpp"

namespace cupool::pool {

class Needs {
 public:
  void add(const Range& range, uint64_t live) {
    if (live == 0) return;
    const Slab* const slab = range.slab.load(std::memory_order_relaxed);
    const uint64_t block = slab != nullptr ? slab->bytes_of_blocks() : range.bytes;
    if (block >= kPageBytes) {
      big_ += round_up(range.bytes, kPageBytes);
      big_here_ += range.bytes;
      return;
    }
    // The driver gives those beyond 1 MiB a step of its own each. Smaller ones share steps there as here.
    if (slab == nullptr && live > kMiB) {
      medium_ += kPageBytes;
      has_small_ = true;
      return;
    }
    has_small_ = true;
    const uint64_t first = std::max(range.start / kPageBytes, next_page_);
    next_page_ = (range.start + range.bytes - 1) / kPageBytes + 1;
    pages_ += next_page_ - std::min(first, next_page_);
  }
  void end_segment(uint64_t bytes) {
    if (has_small_) small_segments_ += bytes - std::min(bytes, big_here_);
    has_small_ = false;
    big_here_ = next_page_ = 0;
  }
  void tell(uint64_t peak_minor, report::Shortage* out) const {
    const uint64_t request = out->rounded;
    out->if_mapped = out->if_dedicated = big_ + medium_ + pages_ * kPageBytes + request;
    // Segments of smaller blocks serve bigger ones once they are free, and grow in advance.
    out->if_exact = big_ + std::max(small_segments_, 2 * peak_minor) + request;
  }

 private:
  uint64_t big_ = 0;             // blocks of a page and more
  uint64_t medium_ = 0;          // those beyond half a page, with a page each
  uint64_t pages_ = 0;           // that hold still smaller ones
  uint64_t small_segments_ = 0;  // what segments with smaller ones have beside the bigger ones
  uint64_t big_here_ = 0;        // in the present segment
  uint64_t next_page_ = 0;
  bool has_small_ = false;
};

}  // namespace cupool::pool
