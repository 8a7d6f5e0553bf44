// The out-of-memory report on stderr: which process asked for how much, why there was none, where the memory
// is, and which settings would have helped. The pool supplies the figures; their interpretation and wording
// are decided here. The cause and the settings of the last one are kept for the report at exit, so that
// `cupool doctor` says the same.
#pragma once

#include <array>
#include <cstdint>

#include "report/writer.hpp"
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
  // The allocator that was asked: cut memory, dedicated blocks, managed memory, the driver's own pool.
  enum class Source { kPool, kDedicated, kManaged, kNative };

  int device = 0;
  Source source = Source::kPool;
  uint64_t asked = 0;
  uint64_t rounded = 0;      // what the driver has to provide for it
  uint64_t device_free = 0;  // as the driver says
  uint64_t device_total = 0;
  uint64_t limit = 0;  // the bound set by the option below
  const char* limit_name = "CUPOOL_LIMIT";
  uint64_t limited = 0;  // how much of it all contexts use
  uint64_t reserved = 0;
  uint64_t rounding = 0;  // what the driver adds: it allocates large memory in steps
  uint64_t live = 0;
  // Device memory of all contexts and allocators of the process together; write_shortage() fills it in.
  uint64_t all_reserved = 0;
  uint64_t all_live = 0;
  uint64_t largest_free = 0;
  uint64_t free_in_shared = 0;  // free, in segments that also hold live blocks
  uint64_t shared_segments = 0;
  uint64_t free_segments = 0;  // wholly free, and still here
  uint64_t free_segment_bytes = 0;
  // Of all these, in other contexts: free pieces without rests, and wholly free segments.
  uint64_t pieces_elsewhere = 0;
  uint64_t free_segments_elsewhere = 0;
  uint64_t free_segment_bytes_elsewhere = 0;
  uint64_t tainted = 0;  // in segments kept back by a tainted block
  uint64_t rests = 0;    // of free_in_shared: what is left of the driver's last step behind a block
  // What the driver would have to give for all live blocks and the request, 0 where that is not known:
  uint64_t if_mapped = 0;     // if they were made of chunks of their own,
  uint64_t if_exact = 0;      // if those of 2 MiB and more were allocations of their own,
  uint64_t if_dedicated = 0;  // if all were
  // The same for the most that the program ever needed before.
  uint64_t peak_if_apart = 0;      // the first two
  uint64_t peak_if_dedicated = 0;  // the third
  bool can_map = true;
  bool capturing = false;
  std::array<Row, stats::kSizeBuckets> rows{};

  Row& row_of(uint64_t bytes) { return rows[stats::size_bucket(bytes)]; }
};

// Why there was no memory: the first of these that applies.
enum class Cause {
  kTooLarge,   // managed memory beyond the whole device, from a driver that gives no such
  kLimit,      // the user's own
  kCapture,    // free memory may not go back to the driver while a stream captures
  kShared,     // what is free lies beside blocks that were shared with others
  kPieces,     // enough is free, but in pieces
  kRests,      // enough would be free, but the driver gives memory in steps
  kNative,     // the driver's own pool has it, and does not use it for this
  kElsewhere,  // enough is free in memory of another kind that the process has
  kOthers,     // other processes, or memory that is not the pool's
  kProgram,    // the program holds it
  kUnclear,    // the device has enough, and the driver still refuses
};
Cause cause_of(const Shortage& shortage);

// Whether another report is wanted: at most CUPOOL_OOM_REPORTS are written.
bool shortage_is_due();
// How many have been due so far.
uint64_t shortages_written();
void write_shortage(Shortage& shortage);

// The kept cause and advice, as fields of a JSON object: "shortage" and "shortage_advice". Safe in a signal
// handler.
void write_last_shortage(Writer& out);

}  // namespace cupool::report
