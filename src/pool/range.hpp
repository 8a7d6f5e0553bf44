// The records of device memory, all on the host. A segment is one allocation of the driver; ranges tile it
// without gaps; a range is free, one block, or a slab of equal small blocks. Records are written under the
// owning pool's range lock; what a look-up reads without a lock is atomic, and the rest does not change while
// the application holds the block.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/driver.hpp"
#include "order/lane.hpp"

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

// pre: step is a power of two.
inline uint64_t round_up(uint64_t bytes, uint64_t step) { return (bytes + step - 1) & ~(step - 1); }

// The bit of a marked block (marks.hpp) in its asked size, or in its tag.
inline constexpr uint64_t kMarkedAsked = uint64_t{1} << 63;
inline constexpr uint16_t kMarkedTag = 0x8000;

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

// A cache line to itself and more: threads hand out and take back neighbouring blocks at the same time.
struct alignas(64) Range : RangeLink {
  Address start = 0;
  uint64_t bytes = 0;
  Pool* pool = nullptr;
  std::atomic<Slab*> slab{nullptr};    // not null: a slab
  std::atomic<uint64_t> asked{0};      // a block: the bytes the application asked for; 0: nobody holds it
  std::atomic<uint8_t> size_class{0};  // of a block that thread caches may keep
  Use use = Use::kFree;
  uint16_t bin = 0;  // free: where bins.hpp has put it
  Epoch stamp = 0;   // free: when its last block was freed
  Segment* segment = nullptr;
  Range* before = nullptr;  // neighbours in the segment
  Range* after = nullptr;
  Range* next_idle = nullptr;

  void reset() {
    start = bytes = 0;
    pool = nullptr;
    slab.store(nullptr, std::memory_order_relaxed);
    asked.store(0, std::memory_order_relaxed);
    size_class.store(0, std::memory_order_relaxed);
    use = Use::kFree;
    stamp = 0;
    segment = nullptr;
    before = after = next_idle = nullptr;
    prev = next = nullptr;
  }

  Address end() const { return start + bytes; }
  // What the application asked for, marked or not; 0: nobody holds it.
  uint64_t asked_bytes() const { return asked.load(std::memory_order_relaxed) & ~kMarkedAsked; }
};

struct Segment {
  Address start = 0;
  uint64_t bytes = 0;
  Pool* pool = nullptr;
  Range* first = nullptr;            // the lowest range
  uint64_t number = 0;               // no two segments of a process have the same
  uint64_t idle_since = 0;           // milliseconds, when it was first seen free; 0: in use since
  std::atomic<bool> tainted{false};  // gives out nothing new; goes back to the driver with its last block
  Segment* prev = nullptr;           // all segments of the pool
  Segment* next = nullptr;
  Segment* next_idle = nullptr;

  void reset() {
    start = bytes = 0;
    pool = nullptr;
    first = nullptr;
    number = 0;
    idle_since = 0;
    tainted.store(false, std::memory_order_relaxed);
    prev = next = next_idle = nullptr;
  }

  // Whether it is one free range from end to end.
  bool is_free() const { return first->use == Use::kFree && first->bytes == bytes; }
};

}  // namespace cupool::pool
