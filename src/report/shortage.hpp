// The one report that a failed allocation leaves on stderr: what was asked, what there is, and why the rest
// could not be given back. The pool fills in the figures; how they read is decided here.
#pragma once

#include <array>
#include <cstdint>

#include "stats/device.hpp"

namespace cupool::report {

struct Shortage {
  // Blocks and free pieces of like size: above half of `bytes`, and up to it.
  struct Row {
    uint64_t blocks = 0;
    uint64_t live = 0;
    uint64_t free = 0;
    bool operator==(const Row&) const = default;
  };

  int device = 0;
  uint64_t asked = 0;
  bool managed = false;      // of managed memory, and so are all figures but the next two
  uint64_t device_free = 0;  // as the driver says
  uint64_t device_total = 0;
  uint64_t limit = 0;  // what the option below allows
  const char* limit_name = "CUPOOL_LIMIT";
  uint64_t reserved = 0;
  uint64_t live = 0;
  uint64_t largest_free = 0;
  uint64_t free_in_shared = 0;  // free, in segments that also hold live blocks
  uint64_t shared_segments = 0;
  uint64_t free_segments = 0;  // wholly free, and still here
  uint64_t free_segment_bytes = 0;
  uint64_t tainted = 0;  // in segments that a tainted block keeps
  bool capturing = false;
  std::array<Row, stats::kSizeBuckets> rows{};

  Row& row_of(uint64_t bytes) { return rows[stats::size_bucket(bytes)]; }
};

// Whether the user still wants one: CUPOOL_OOM_REPORTS are written, and no more.
bool shortage_is_due();
void write_shortage(const Shortage& shortage);

}  // namespace cupool::report
