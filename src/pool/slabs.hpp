// Small blocks of one pool: slabs of equal blocks, and per size class a list of slabs with room, under the
// class's own lock. A taken block belongs to the caller (a thread cache or the application); a block given
// back is only a bit and the slab's stamp. The pool provides the ranges and takes them back: nothing here
// calls the driver.
#pragma once

#include <array>

#include "base/lock.hpp"
#include "order/timeline.hpp"
#include "pool/metadata.hpp"
#include "pool/range.hpp"
#include "pool/size_classes.hpp"
#include "pool/slab.hpp"

namespace cupool::pool {

// A free block on its way between a slab, a thread cache and the application.
struct Entry {
  static constexpr Address kFirstUse = 1;

  Address address;  // with kFirstUse added if some of its memory was never handed out
  Range* range;
  Epoch stamp;
  Tag* tag;  // 0 while the block is free

  Address start() const { return address & ~kFirstUse; }
  bool is_first_use() const { return (address & kFirstUse) != 0; }
};

// Whether the application holds a block of this range, or a stream has yet to free one.
bool is_held(const Range& range);

class Slabs {
 public:
  constexpr explicit Slabs(const SizeClasses& classes) : classes_(classes) {}

  // Takes up to `count` blocks that may be handed out now; returns how many. Their stamp is 0 if no work was
  // pending.
  size_t take(unsigned size_class, size_t count, const order::Timeline& order, order::Reach reach,
              Entry* out);
  // Gives blocks of one class back; returns how many. Stops when a slab becomes empty: its range is returned
  // in `emptied` and must go back to Ranges. Call again with the rest.
  size_t give(unsigned size_class, const Entry* entries, size_t count, Range** emptied);

  // The size of the next slab of this class: larger as the class grows.
  uint64_t slab_bytes(unsigned size_class) const;
  // Of all slabs of this class.
  uint64_t bytes_of(unsigned size_class) const {
    return classes_state_[size_class].bytes.load(std::memory_order_relaxed);
  }
  // Makes `range` a slab and takes up to `count` of its blocks at once. 0: no host memory; the range stays
  // with the caller.
  size_t add(unsigned size_class, Range* range, size_t count, Entry* out);
  // Whether a slab of this class has blocks to give, now or when their work is done.
  bool have_room(unsigned size_class);
  // The segment of this range is tainted: if the range is a slab, it serves no more blocks.
  void close(Range* range);
  // The context has ended. If the range is a slab, its record serves the next one; none has room any more.
  void drop(Range* range);
  void drop_all();

 private:
  struct Class {
    Lock lock{Rank::kSlabClass};
    Slab* first CUPOOL_GUARDED_BY(lock) = nullptr;  // slabs with room, by address
    std::atomic<uint64_t> bytes{0};                 // of all slabs of the class
  };
  // Idle records, bucketed by how many blocks they have room for; never used for anything else.
  struct Store {
    Lock lock{Rank::kSlabStore};
    std::array<Slab*, 16> idle CUPOOL_GUARDED_BY(lock) = {};
    char* chunk CUPOOL_GUARDED_BY(lock) = nullptr;
    size_t left CUPOOL_GUARDED_BY(lock) = 0;
  };

  Slab* new_slab(uint32_t blocks);
  void retire(Class& c, Slab* slab) CUPOOL_REQUIRES(c.lock);
  void store(Slab* slab);
  static void list(Class& c, Slab* slab) CUPOOL_REQUIRES(c.lock);
  static void unlist(Class& c, Slab* slab) CUPOOL_REQUIRES(c.lock);
  static size_t take_from(Slab* slab, size_t count, Entry* out);

  const SizeClasses& classes_;
  std::array<Class, SizeClasses::kMostSmall> classes_state_{};
  Store store_;
};

}  // namespace cupool::pool
