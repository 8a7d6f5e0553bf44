// The records of device memory, all on the host. A segment is one allocation of the driver; ranges tile it
// without gaps; a range is free, one block, or a slab of equal small blocks. Records are written under the
// owning pool's range lock; what a look-up reads without a lock is atomic, and the rest does not change while
// the application holds the block.
#pragma once

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
inline constexpr uint64_t kPageBytes = uint64_t{1} << kPageShift;  // the driver's step, and the page map's
inline constexpr uint64_t kGranuleShift = 14;
inline constexpr uint64_t kGranule = uint64_t{1} << kGranuleShift;  // ranges start and end on these
inline constexpr uint64_t kGranulesPerPage = kPageBytes / kGranule;

// Says whether the application holds a block. 0: nobody does; else one more than the bytes of the block that
// were not asked for, or kAskedApart, with a bit if the block is marked (allocator/marks.hpp).
using Tag = std::atomic<uint16_t>;
inline constexpr uint16_t kMarkedTag = 0x8000;
inline constexpr uint16_t kAskedApart = 0x7fff;  // the range says what was asked for

inline constexpr uint64_t kUnit = 256;     // addresses of blocks, and the sizes of small ones, are multiples
inline constexpr unsigned kNotKept = 255;  // the class of what is never in a thread's cache

struct Range;

// What holds a block, as every free reads it without a lock: the slab of a small one, or the range that is
// one block by itself. Both alike: a program's next block is of either kind, and a branch on that would be
// guessed wrongly half of the time.
struct Holder {
  Address start = 0;
  uint32_t reciprocal = 0;  // of block_bytes in units, for dividing by it; 0: there is one block only
  std::atomic<uint32_t> block_bytes{0};
  uint32_t blocks = 1;
  std::atomic<uint8_t> size_class{0};
  Range* range = nullptr;  // itself, or what the slab is made of
  Pool* pool = nullptr;
  Tag* tags = nullptr;  // one a block

  // The block that starts at `address`, or `blocks` when none does. pre: it is in here.
  uint32_t index_of(Address address) const {
    const uint32_t index = index_containing(address);
    return starts(index, address) ? index : blocks;
  }
  // Whether that block is one, and starts at `address`.
  bool starts(uint32_t index, Address address) const {
    return index < blocks && uint64_t{index} * bytes_of_blocks() == address - start;
  }
  uint32_t index_containing(Address address) const {
    return static_cast<uint32_t>((((address - start) / kUnit) * reciprocal) >> 32);
  }
  uint32_t bytes_of_blocks() const { return block_bytes.load(std::memory_order_relaxed); }
  unsigned class_of_blocks() const { return size_class.load(std::memory_order_relaxed); }
  // The bytes that were asked for, if the tag is not 0.
  uint64_t asked(uint16_t tag) const;
  // Whether the application holds a block that has these bytes. pre: `address` is in here.
  bool holds(Address address, uint64_t bytes) const;
};

enum class Use : uint8_t { kFree, kPending, kTaken };

// A place in a ring of ranges that are not taken; its head is one too, so that nobody has to ask whether
// there is a neighbour: no processor can foretell the answer.
struct RangeLink {
  RangeLink* prev = nullptr;
  RangeLink* next = nullptr;

  void insert_after(RangeLink* link) {
    prev = link;
    next = link->next;
    next->prev = this;
    link->next = this;
  }
  void unlink() {
    prev->next = next;
    next->prev = prev;
  }
};

// Cache lines to itself: threads hand out and take back neighbouring blocks at the same time.
struct alignas(64) Range : Holder, RangeLink {
  uint64_t bytes = 0;
  std::atomic<Slab*> slab{nullptr};      // not null: a slab
  std::atomic<uint64_t> large_asked{0};  // of a block whose tag cannot tell
  Epoch stamp = 0;                       // free: when its last block was freed; a large block: its turn
  Segment* segment = nullptr;
  Range* before = nullptr;                        // neighbours in the segment
  Range* after = nullptr;                         // among idle records: the next one
  Tag tag{0};                                     // of the one block
  uint16_t bin = 0;                               // free: where bins.hpp has put it
  order::LaneName sole = order::LaneName::kNone;  // free: the lane that alone worked on its last block
  Use use = Use::kFree;

  // Whose block, and in which record, never changes.
  Range() {
    range = this;
    tags = &tag;
  }
  void reset() {
    start = bytes = 0;
    pool = nullptr;
    slab.store(nullptr, std::memory_order_relaxed);
    tag.store(0, std::memory_order_relaxed);
    size_class.store(0, std::memory_order_relaxed);
    use = Use::kFree;
    stamp = 0;
    sole = order::LaneName::kNone;
    segment = nullptr;
    before = after = nullptr;
    prev = next = nullptr;
  }

  Address end() const { return start + bytes; }
};

static_assert(sizeof(Range) == 128);

inline uint64_t Holder::asked(uint16_t tag) const {
  const uint16_t told = tag & ~kMarkedTag;
  return told != kAskedApart ? bytes_of_blocks() + 1u - told
                             : range->large_asked.load(std::memory_order_relaxed);
}

inline bool Holder::holds(Address address, uint64_t bytes) const {
  const uint32_t index = index_containing(address);
  const uint16_t tag = index < blocks ? tags[index].load(std::memory_order_relaxed) : 0;
  if (tag == 0) return false;
  const uint64_t size = asked(tag);
  const uint64_t into = address - start - uint64_t{index} * bytes_of_blocks();
  return into <= size && bytes <= size - into;
}

struct Segment {
  Address start = 0;
  uint64_t bytes = 0;
  Pool* pool = nullptr;
  Range* first = nullptr;            // the lowest range
  uint64_t number = 0;               // no two segments of a process have the same
  uint64_t idle_since = 0;           // milliseconds, when it was first seen free; 0: in use since
  std::atomic<bool> tainted{false};  // gives out nothing new; goes back to the driver with its last block
  Segment* prev = nullptr;           // all segments of the pool
  Segment* next = nullptr;           // among idle records: the next one

  void reset() {
    start = bytes = 0;
    pool = nullptr;
    first = nullptr;
    number = 0;
    idle_since = 0;
    tainted.store(false, std::memory_order_relaxed);
    prev = next = nullptr;
  }

  // Whether it is one free range from end to end.
  bool is_free() const { return first->use == Use::kFree && first->bytes == bytes; }
};

// Marks a block that the application holds, so that its free takes the slow path, and all others pay for the
// test of one bit. False: nobody holds it.
inline bool set_mark_bit(Tag& tag) {
  uint16_t seen = tag.load(std::memory_order_relaxed);
  while (seen != 0) {
    if ((seen & kMarkedTag) != 0 || tag.compare_exchange_weak(seen, seen | kMarkedTag)) return true;
  }
  return false;
}

}  // namespace cupool::pool
