// The freed blocks that a thread keeps: per size class a ring, oldest first, up to a bound for each and for
// all. Takes no lock: for the owner between enter() and exit() (owner_handshake.hpp), or the thread that
// stopped it. Knows stamps as numbers; which may be handed out, the caller asks the timeline.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "order/timeline.hpp"
#include "pool/settings.hpp"
#include "pool/size_classes.hpp"
#include "pool/slabs.hpp"

namespace cupool::pool {

// Freed blocks of one class. Stamps do not decrease from the oldest to the newest.
struct alignas(32) Shelf {
  Entry* ring = nullptr;
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t room = 0;  // a power of two, or 0 before the first use and while it is closed
  uint32_t mask = 0;  // room - 1, closed or not
  uint32_t block_bytes = 0;

  Entry& at(uint32_t i) { return ring[(first + i) & mask]; }
  Entry pop_newest() { return at(--count); }
  Entry pop_oldest() {
    const Entry entry = at(0);
    first = (first + 1) & mask;
    --count;
    return entry;
  }
  void push_newest(const Entry& entry) { at(count++) = entry; }
  void push_oldest(const Entry& entry) {
    first = (first - 1) & mask;
    ring[first] = entry;
    ++count;
  }
};

class Shelves {
 public:
  static constexpr uint32_t kMostBlocks = 64;
  static constexpr uint32_t kMostKept = 256;  // on one shelf, however it grows
  static constexpr size_t kMostMoved = 32;    // at once, on the stack: threads may have only 16 KiB
  static constexpr uint64_t kMostShelfBytes = 256 << 10;
  static constexpr uint64_t kFewestRanges = 16;

  Shelves(const SizeClasses& sizes, const Settings& settings)
      : most_{settings.thread_cache, settings.thread_cache / 4},
        most_unsafe_(std::max(settings.thread_cache, settings.many_budget / 32) * 4),
        sizes_(sizes) {}

  // The newest block of a class; false when there is none. pre: any stamp may be handed out now.
  [[gnu::always_inline]] bool take_newest(unsigned size_class, Entry* out) {
    Shelf& shelf = shelves_[size_class];
    if (shelf.count == 0) [[unlikely]]
      return false;
    *out = shelf.pop_newest();
    bytes_of(size_class) -= shelf.block_bytes;
    return true;
  }
  // A block whose stamp is at most `limit`; false when there is none. Its stamp is 0 if any may be handed
  // out, because no work was pending.
  bool take(unsigned size_class, Epoch limit, Entry* out) {
    if (limit == order::kAnyStamp) {
      if (!take_newest(size_class, out)) return false;
      out->stamp = 0;
      return true;
    }
    Shelf& shelf = shelves_[size_class];
    if (shelf.count == 0 || shelf.at(0).stamp > limit) return false;
    *out = shelf.pop_oldest();
    bytes_of(size_class) -= shelf.block_bytes;
    return true;
  }
  // False: the shelf is full, or shelves of its kind together are at their byte limit.
  [[gnu::always_inline]] bool put(unsigned size_class, const Entry& entry) {
    return put_within(most_[is_range(size_class)], size_class, entry);
  }
  // The same with the higher limit under several streams (`is_spread`): a block that cannot be handed out yet
  // gains nothing from being merged, so the thread may as well keep it.
  bool put_more(unsigned size_class, const Entry& entry, bool is_spread) {
    const bool more = is_range(size_class) != 0 && is_spread;
    return put_within(more ? most_unsafe_ : most_[is_range(size_class)], size_class, entry);
  }
  // Adds blocks that came from a slab: older than everything on the shelf.
  // pre: prepare() or batch() has made the shelf, and others have closed it since at most.
  void put_oldest(unsigned size_class, const Entry* entries, size_t count);
  // How many blocks of this class to fetch when one is needed; the others fit on the shelf.
  uint32_t batch(unsigned size_class) {
    const uint32_t room = prepare(size_class);
    return std::max(1u, std::min(room / 2, room - shelves_[size_class].count + 1));
  }
  // Makes the shelf if there is none, and opens it; returns its room, 0 when this class is not kept at all.
  uint32_t prepare(unsigned size_class);
  // Doubles a full shelf of ranges: for where blocks have to wait before they can be handed out. False:
  // unchanged.
  bool widen(unsigned size_class);
  // Moves blocks to `out`, which has room for kMostMoved, until `keep` are left; returns how many. Fewer than
  // kMostMoved: those were all.
  size_t remove_oldest(unsigned size_class, uint32_t keep, Entry* out);
  // An empty shelf has no room until it is prepared again.
  void close(unsigned size_class) { shelves_[size_class].room = 0; }

  // Notes a block that found no room. Whether, after a few of them, another class should give way.
  bool note_misfit() {
    constexpr unsigned kMisfitsATurn = 8;
    return ++misfits_ % kMisfitsATurn == 0;
  }
  // How many bytes of ranges the thread keeps. Kept ranges cannot be merged, so a thread that also asks for
  // larger blocks keeps few; one that has not for long may keep more, up to `bytes`, and fewer when memory is
  // short.
  void keep_few_ranges() { allow_ranges(0); }
  void keep_fewer_ranges() { allow_ranges(most_[1] / 2); }
  void keep_more_ranges(uint64_t bytes) {
    constexpr unsigned kPatience = 64;
    // Doubling may overflow.
    const uint64_t most = std::max(most_[0], most_[0] * 2);
    if (misfits_ - calm_since_ >= kPatience) most_[1] = std::clamp(bytes, most_[0] / 4, most);
  }
  // Round robin: another non-empty class of the same kind, so that unused ones give way; kNotKept: there is
  // none.
  unsigned next_to_empty(unsigned size_class);

  const Shelf& of(unsigned size_class) const { return shelves_[size_class]; }
  const SizeClasses& sizes() const { return sizes_; }
  // The pool uses these fine classes. Owner only: nobody else asks for the class of a size.
  void use_fine(const SizeClasses::Mask& which) { sizes_.use_fine(which); }
  // From any thread. A block whose free the asking thread knows of is seen. Reads beside the owner's plain
  // stores: an atomic store would cost the owner an instruction in every pair.
  [[gnu::no_sanitize_thread]] bool are_empty() const {
    return __atomic_load_n(&bytes_[0], __ATOMIC_RELAXED) == 0 &&
           __atomic_load_n(&bytes_[1], __ATOMIC_RELAXED) == 0;
  }

 private:
  void allow_ranges(uint64_t bytes) {
    most_[1] = std::max(bytes, most_[0] / 4);
    calm_since_ = misfits_;
  }
  // Small blocks and ranges are limited apart: one range of a megabyte must not evict all small blocks.
  static size_t is_range(unsigned size_class) { return size_class / SizeClasses::kMostSmall; }
  uint64_t& bytes_of(unsigned size_class) { return bytes_[is_range(size_class)]; }
  [[gnu::always_inline]] bool put_within(uint64_t most, unsigned size_class, const Entry& entry) {
    Shelf& shelf = shelves_[size_class];
    const uint64_t bytes = bytes_of(size_class) + shelf.block_bytes;
    if (shelf.count == shelf.room || bytes > most) return false;
    shelf.push_newest(entry);
    bytes_of(size_class) = bytes;
    return true;
  }

  std::array<uint64_t, 2> bytes_{};  // kept: small blocks, ranges
  std::array<uint64_t, 2> most_;
  uint64_t most_unsafe_;
  std::array<unsigned, 2> cursors_{};
  unsigned misfits_ = 0;
  unsigned calm_since_ = 0;  // misfits_ when ranges last had to be given up
  std::array<Shelf, SizeClasses::kMostClasses> shelves_{};
  SizeClasses sizes_;  // a copy: one indirection less on the hot path
};

}  // namespace cupool::pool
