// When a pool takes more memory, and how much at a time: the policy alone, as functions of figures. Knows no
// pool, no lock and no driver, so that tests ask it directly. What a pool remembers between two questions is
// in growth_history.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pool/settings.hpp"
#include "pool/size_classes.hpp"

namespace cupool::pool::growth {

inline constexpr uint64_t kLarge = 10 << 20;
// To wait for the last work on such a block takes long.
inline constexpr uint64_t kVeryLarge = 48 << 20;

// Small blocks share small segments.
inline bool is_small(uint64_t bytes) { return bytes <= SizeClasses::kLargestKept; }

// A pool at one moment. Threads may change it meanwhile: a figure may be a little older than another.
struct Figures {
  uint64_t reserved = 0;
  uint64_t usable = 0;            // of these, not lost to a taint
  uint64_t peak_taken = 0;        // the most that was handed out at once
  uint64_t spread = 0;            // of these, taken so that streams need not wait for each other
  uint64_t spread_once = 0;       // when idle memory went back: those bytes,
  uint64_t needed_once = 0;       // and the most that was reserved beside them
  uint64_t last_need = 0;         // for which the last segment was taken, in whole pages
  uint64_t equal_segments = 0;    // how many in a row were taken for this need
  uint64_t taken = 0;             // what is handed out
  uint64_t apart = 0;             // the same, if the driver had given each range by itself
  uint64_t in_holes = 0;          // free beyond that, in segments of which something is handed out
  uint64_t for_small = 0;         // reserved in segments for small blocks
  uint64_t most = ~uint64_t{0};   // that the device, or the user's limit, has
  uint64_t moved = 0;             // chunks, since more was handed out at once than ever before
  uint64_t few_moves = 0;         // so many are too few to take more memory instead
  uint64_t largest_moved = 0;     // the largest run they were moved for
  size_t lanes_in_turns = 0;      // that take turns, or run side by side
  bool has_turns = false;         // lanes took turns at all
  bool is_newly_tainted = false;  // a segment was, since the last one was taken
  bool is_cache_limited = false;  // by the user, to less than the device has
  uint64_t full_at = 0;           // what was reserved when the device was last found full; 0: it has room

  // What is reserved, but for what was taken so that streams need not wait for each other.
  uint64_t needed() const { return reserved - std::min(reserved, spread); }
};

// The largest segment that blocks of this size may be cut from.
uint64_t largest_split(const Settings& settings, uint64_t need);
// The size of the next segment of the driver's.
uint64_t segment_bytes(const Settings& settings, const Figures& figures, uint64_t need, bool is_small);

// Whether the device has hardly room for a block beside what is reserved.
bool is_nearly_full(const Figures& figures, uint64_t bytes);
// Whether it has little besides what is in use. A block is then cut off only where it keeps no much larger
// segment from going back; and, if much of the rest lies in pieces between blocks, from no segment that is
// wholly free.
bool is_crowded(const Figures& figures, uint64_t bytes);
bool has_many_holes(const Figures& figures);
// On a nearly full device: whether a block gets a segment of its own though it could be cut from a free
// range, the smallest of which has `best` bytes (0: there is none).
bool should_replace(const Figures& figures, uint64_t bytes, uint64_t best);

// The size of a segment that is taken for a block though it could be cut from a free one many times as large,
// which then still serves a large block, or goes back. 0: none.
uint64_t spare_bytes(const Settings& settings, const Figures& figures, uint64_t need);

// Mapped memory: the size of the next run, and of the chunks that are made for one.
uint64_t run_bytes(const Settings& settings, const Figures& figures, uint64_t need);
uint64_t most_of_chunk(const Settings& settings, uint64_t run);
// Whether a run for such a block may begin in the page where another one ends.
bool may_share_page(const Figures& figures, uint64_t need);

// Whether so many bytes may be taken so that streams need not wait for each other.
bool may_spread(const Settings& settings, const Figures& figures, uint64_t bytes);
// Mapped memory: whether so many bytes more stay close to what was needed, or was handed out.
bool may_exceed(const Figures& figures, uint64_t bytes);
// Mapped memory: whether a run gets new memory, though what lies free elsewhere could move there; and
// whether it may have it.
bool should_grow(const Figures& figures, uint64_t bytes);
bool may_grow(const Figures& figures, uint64_t bytes);
// After a pause: how much of what was taken for streams might have been needed by now. 0: none.
uint64_t maybe_needed(const Figures& figures);
// Whether segments come and go all the time.
inline bool thrashes(uint64_t added, uint64_t released) { return released * 5 > added * 2 + 20; }

// How many bytes of ranges a thread may keep if it asks for nothing larger.
uint64_t thread_share(const Figures& figures, unsigned threads);

// How much a thread may free before a seal is due. Unsealed memory cannot be reused, so this is a small share
// of the pool: on one stream a seal costs less than a microsecond.
inline uint64_t most_unsealed(uint64_t reserved) {
  constexpr uint64_t kFewest = 512 << 10;
  constexpr uint64_t kShare = 512;
  return std::max(kFewest, reserved / kShare);
}
// The same where several streams are at work, for blocks of so many bytes.
struct Streams {
  size_t lanes_in_turns = 0;
  bool have_several_threads = false;
};
uint64_t most_unsealed(const Settings& settings, uint64_t reserved, const Streams& streams, uint64_t bytes);

}  // namespace cupool::pool::growth
