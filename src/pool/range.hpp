// The records of device memory, all on the host. A segment is one allocation of the driver, or mapped memory
// side by side; ranges tile it without gaps; a range is free, one block, or a slab of equal small blocks.
// Records are written under the owning pool's range lock; fields that a lock-free look-up reads are atomic,
// or do not change while the block is live.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/bytes.hpp"
#include "driver/driver.hpp"
#include "order/lane.hpp"
#include "order/turns.hpp"

namespace cupool::pool {

using driver::Address;
using order::Epoch;

class Pool;
struct Segment;
struct Slab;

inline constexpr uint64_t kPageShift = 21;
inline constexpr uint64_t kPageBytes = uint64_t{1} << kPageShift;  // of the driver and of the page map
inline constexpr uint64_t kGranuleShift = 14;
inline constexpr uint64_t kGranule = uint64_t{1} << kGranuleShift;  // ranges start and end on multiples
inline constexpr uint64_t kGranulesPerPage = kPageBytes / kGranule;

// Says whether a block is live. 0: free; else 1 + the block's slack (size less requested bytes), or
// kAskedApart, with a bit if the block is marked (allocator/marks.hpp).
using Tag = std::atomic<uint16_t>;
inline constexpr uint16_t kMarkedTag = 0x8000;
inline constexpr uint16_t kAskedApart = 0x7fff;  // the range has the requested size

inline constexpr uint64_t kUnit = 256;     // block addresses and small block sizes are multiples
inline constexpr unsigned kNotKept = 255;  // the class of blocks that no thread cache's shelves hold

struct Range;

// The record behind a block, which every free reads without a lock: the slab of a small block, or the range
// that is one block by itself. One layout for both, because a branch on the kind would be mispredicted half
// of the time.
struct BlockRecord {
  Address start = 0;
  uint32_t reciprocal = 0;  // of block_bytes in units, to divide by it; 0: a single block
  std::atomic<uint32_t> block_bytes{0};
  uint32_t blocks = 1;
  std::atomic<uint8_t> size_class{0};
  mutable std::atomic<uint16_t> pending_frees{0};  // blocks that a stream has yet to free (stream_frees.hpp)
  Range* range = nullptr;                          // itself, or the slab's range
  Pool* pool = nullptr;
  Tag* tags = nullptr;  // one per block

  // The block that starts at `address`, or `blocks` when none does. pre: it is in here.
  uint32_t index_of(Address address) const {
    const uint32_t index = index_containing(address);
    return starts(index, address) ? index : blocks;
  }
  // Whether block `index` exists and starts at `address`.
  bool starts(uint32_t index, Address address) const {
    return index < blocks && uint64_t{index} * bytes_of_blocks() == address - start;
  }
  uint32_t index_containing(Address address) const {
    return static_cast<uint32_t>((((address - start) / kUnit) * reciprocal) >> 32);
  }
  uint32_t bytes_of_blocks() const { return block_bytes.load(std::memory_order_relaxed); }
  unsigned class_of_blocks() const { return size_class.load(std::memory_order_relaxed); }
  // The requested bytes. pre: the tag is not 0.
  uint64_t asked(uint16_t tag) const;
  // Whether these bytes lie in one live block. pre: `address` is in here.
  bool holds(Address address, uint64_t bytes) const;
};

enum class Use : uint8_t { kFree, kPending, kTaken };

// A place in one order of free ranges (range_tree.hpp).
struct RangeNode {
  Range* lower = nullptr;
  Range* higher = nullptr;
};
// The same with the stamps of the tree below, itself included.
struct TimedNode : RangeNode {
  Epoch earliest = 0;
  Epoch latest = 0;
};

// Aligned against false sharing: threads hand out and take back neighbouring blocks at the same time.
struct alignas(64) Range : BlockRecord {
  uint64_t bytes = 0;
  std::atomic<Slab*> slab{nullptr};  // not null: a slab
  // The requested size, if the tag cannot hold the slack. Free: milliseconds, when it was first seen free; 0:
  // not seen free.
  std::atomic<uint64_t> large_asked{0};
  Epoch stamp = 0;  // free: when its last block was freed; a large block: its turn
  std::atomic<Segment*> segment{nullptr};
  Range* before = nullptr;                        // neighbours in the segment
  Range* after = nullptr;                         // among idle records: the next one
  Tag tag{0};                                     // of its single block
  order::LaneName sole = order::LaneName::kNone;  // free: the only lane that worked on its last block
  Use use = Use::kFree;
  bool chunkless = false;  // mapped: no whole chunk lies in it, as far as it was looked for
  // Free: its places among the free ones.
  TimedNode by_size, by_lane;
  RangeNode by_time;

  // These two never change.
  constexpr Range() {
    range = this;
    tags = &tag;
  }
  void reset() {
    set_start(0);
    bytes = 0;
    pool = nullptr;
    slab.store(nullptr, std::memory_order_relaxed);
    tag.store(0, std::memory_order_relaxed);
    large_asked.store(0, std::memory_order_relaxed);
    size_class.store(0, std::memory_order_relaxed);
    pending_frees.store(0, std::memory_order_relaxed);
    use = Use::kFree;
    stamp = 0;
    sole = order::LaneName::kNone;
    chunkless = false;
    segment.store(nullptr, std::memory_order_relaxed);
    before = after = nullptr;
  }

  Address end() const { return start + bytes; }
  // A look-up that follows an outdated segment may read it at the same time.
  void set_start(Address address) { std::atomic_ref(start).store(address, std::memory_order_relaxed); }
  // How many bytes at its end were never handed out; from its last free until it is given a block.
  uint64_t new_bytes() const { return uint64_t{block_bytes.load(std::memory_order_relaxed)} * kUnit; }
  void set_new_bytes(uint64_t count) {
    // (Above 1 TiB less is told than was new.)
    block_bytes.store(static_cast<uint32_t>(std::min(count / kUnit, uint64_t{UINT32_MAX})),
                      std::memory_order_relaxed);
  }
  uint64_t idle_since() const { return large_asked.load(std::memory_order_relaxed); }
  void set_idle_since(uint64_t ms) { large_asked.store(ms, std::memory_order_relaxed); }
};

static_assert(sizeof(Range) == 192);

inline uint64_t BlockRecord::asked(uint16_t tag) const {
  const uint16_t told = tag & ~kMarkedTag;
  return told != kAskedApart ? bytes_of_blocks() + 1u - told
                             : range->large_asked.load(std::memory_order_relaxed);
}

inline bool BlockRecord::holds(Address address, uint64_t bytes) const {
  const Address begin = std::atomic_ref(const_cast<Address&>(start)).load(std::memory_order_relaxed);
  const auto index = static_cast<uint32_t>((((address - begin) / kUnit) * reciprocal) >> 32);
  const uint16_t tag = index < blocks ? tags[index].load(std::memory_order_relaxed) : 0;
  if (tag == 0) return false;
  const uint64_t size = asked(tag);
  const uint64_t into = address - begin - uint64_t{index} * bytes_of_blocks();
  return into <= size && bytes <= size - into;
}

struct Segment {
  Address start = 0;
  uint64_t bytes = 0;
  Pool* pool = nullptr;                // never changes: a look-up may follow an outdated segment
  std::atomic<Range*> first{nullptr};  // the lowest range
  Range* last = nullptr;               // the highest one
  bool mapped = false;                 // made of chunks; else one allocation of the driver
  bool small = false;                  // for slabs: other blocks look elsewhere first
  uint64_t number = 0;                 // unique in the process
  uint64_t idle_since = 0;             // milliseconds, when it was first seen free; 0: not seen free
  std::atomic<bool> tainted{false};    // serves no new block; goes back to the driver after its last one
  Segment* prev = nullptr;             // all segments of the pool
  Segment* next = nullptr;             // among idle records: the next one
  uint32_t taken = 0;                  // of the driver's: how many of its ranges are handed out
  Segment* prev_ripe = nullptr;        // among ripe segments, or idle ones
  Segment* next_ripe = nullptr;

  void reset() {
    start = bytes = 0;
    first.store(nullptr, std::memory_order_relaxed);
    last = nullptr;
    mapped = small = false;
    number = 0;
    idle_since = 0;
    taken = 0;
    tainted.store(false, std::memory_order_relaxed);
    prev = next = nullptr;
    prev_ripe = next_ripe = nullptr;
  }

  // Whether it is one free range from end to end.
  bool is_free() const { return lowest()->use == Use::kFree && lowest()->bytes == bytes; }
  Range* lowest() const { return first.load(std::memory_order_relaxed); }
  Address end() const { return start + bytes; }
};

// Marks a live block, so that its free takes the slow path while all others pay for one bit test only. False:
// it is not live.
inline bool set_mark_bit(Tag& tag) {
  uint16_t seen = tag.load(std::memory_order_relaxed);
  while (seen != 0) {
    if ((seen & kMarkedTag) != 0 || tag.compare_exchange_weak(seen, seen | kMarkedTag)) return true;
  }
  return false;
}

}  // namespace cupool::pool
