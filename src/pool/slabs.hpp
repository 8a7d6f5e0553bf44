// Small blocks of one pool: slabs of equal blocks, one list of slabs with room per size class, each under its
// own lock. A block taken here belongs to the caller (a thread cache or the application); a block given back
// is only a bit and the slab's stamp. Slabs are made of ranges, which the pool brings and takes away: nothing
// here calls the driver.
#pragma once

#include <array>

#include "base/lock.hpp"
#include "order/timeline.hpp"
#include "pool/metadata.hpp"
#include "pool/range.hpp"
#include "pool/size_classes.hpp"

namespace cupool::pool {

using Tag = std::atomic<uint16_t>;

// A block that nobody holds, on its way between a slab, a thread and the application.
struct Entry {
  Address address;
  Range* range;
  Epoch stamp;
  Tag* tag;  // where its slab notes who holds it; null: it is a range of its own
};

// The record of one slab. Its tags, which follow it, say which blocks the application holds, and what it
// asked for: 0 is nobody's, else one more than the bytes of the block that were not asked for, with a bit if
// it is marked. Only tags are written without the class's lock. What every free reads has a cache line to
// itself, apart from what changes under the lock.
struct alignas(64) Slab {
  Address start = 0;
  uint32_t reciprocal = 0;  // of block_bytes in units, for dividing by it
  uint32_t block_bytes = 0;
  uint32_t blocks = 0;
  uint8_t size_class = 0;
  uint8_t bucket = 0;
  Range* range = nullptr;
  Pool* pool = nullptr;

  alignas(64) uint32_t free_blocks = 0;
  bool closed = false;  // its segment is tainted: nothing is taken from it any more, and it is in no list
  Epoch stamp = 0;      // the newest of the blocks given back
  Slab* prev = nullptr;
  Slab* next = nullptr;
  uint64_t* free_bits = nullptr;
  uint64_t few_bits = 0;  // all of them, if there are no more than 64

  Tag* tags() { return reinterpret_cast<Tag*>(this + 1); }
  const Tag* tags() const { return reinterpret_cast<const Tag*>(this + 1); }
  // The block that starts at `address`, or `blocks` when none does. pre: the slab holds the address.
  uint32_t index_of(Address address) const {
    const uint32_t index = index_containing(address);
    return index < blocks && uint64_t{index} * block_bytes == address - start ? index : blocks;
  }
  uint32_t index_containing(Address address) const {
    return static_cast<uint32_t>((((address - start) / SizeClasses::kUnit) * reciprocal) >> 32);
  }
  // The bytes that were asked for. pre: tag is not 0.
  uint64_t asked(uint16_t tag) const { return block_bytes + 1u - (tag & ~kMarkedTag); }
  // The tag of a block of which so much was asked for.
  static uint16_t tag_of(uint64_t block_bytes, uint64_t asked) {
    return static_cast<uint16_t>(block_bytes - asked + 1);
  }
};

class Slabs {
 public:
  constexpr explicit Slabs(const SizeClasses& classes) : classes_(classes) {}

  // Up to `count` blocks that may be handed out now; how many there were.
  size_t take(unsigned size_class, size_t count, const order::Timeline& order, Entry* out);
  // Gives blocks of one class back, and returns how many went in: it stops at a slab that is thereby empty,
  // whose range comes out in `emptied` and must go back to Ranges. Call again with the rest.
  size_t give(unsigned size_class, const Entry* entries, size_t count, Range** emptied);

  // The size of the next slab of this class: larger as the class grows.
  uint64_t slab_bytes(unsigned size_class) const;
  // Makes `range` a slab and takes up to `count` of its blocks at once. 0: no host memory, the range is still
  // the caller's.
  size_t add(unsigned size_class, Range* range, size_t count, Entry* out);
  // The segment of this range is tainted: if the range is a slab, no more blocks come from it.
  void close(Range* range);
  void drop_all();

 private:
  struct Class {
    Lock lock;
    Slab* first CUPOOL_GUARDED_BY(lock) = nullptr;  // slabs with room, by address
    std::atomic<uint64_t> bytes{0};                 // of all slabs of the class
  };
  // Records by how many blocks they have room for, each kind reused only for itself.
  struct Store {
    Lock lock;
    std::array<Slab*, 16> idle CUPOOL_GUARDED_BY(lock) = {};
    char* chunk CUPOOL_GUARDED_BY(lock) = nullptr;
    size_t left CUPOOL_GUARDED_BY(lock) = 0;
  };

  Slab* new_slab(uint32_t blocks);
  void retire(Class& c, Slab* slab) CUPOOL_REQUIRES(c.lock);
  static void list(Class& c, Slab* slab) CUPOOL_REQUIRES(c.lock);
  static void unlist(Class& c, Slab* slab) CUPOOL_REQUIRES(c.lock);
  static size_t take_from(Slab* slab, size_t count, Entry* out);

  const SizeClasses& classes_;
  std::array<Class, SizeClasses::kMostSmall> classes_state_{};
  Store store_;
};

}  // namespace cupool::pool
