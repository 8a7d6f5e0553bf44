// One thread's cache of one pool: per size class a ring of freed blocks, oldest first. A block has no owner
// thread; the freeing thread keeps it, up to a bound. The owner uses its cache without a lock. Another thread
// may empty it (out of memory, end of a context) through stop(): the stopping thread is the rare side of
// base/asymmetric_fence.hpp, the owner the fast one.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/asymmetric_fence.hpp"
#include "base/reentry.hpp"
#include "order/timeline.hpp"
#include "pool/kept_large.hpp"
#include "pool/settings.hpp"
#include "pool/size_classes.hpp"
#include "pool/slabs.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

// Freed blocks of one class. Stamps do not decrease from the oldest to the newest.
struct alignas(32) Shelf {
  Entry* ring = nullptr;
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t room = 0;  // a power of two, or 0 before the first use
  uint32_t mask = 0;  // room - 1
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

class alignas(128) ThreadCache {
 public:
  static constexpr uint32_t kMostBlocks = 64;
  static constexpr uint32_t kMostKept = 256;  // on one shelf, however it grows
  static constexpr size_t kMostMoved = 32;    // at once, on the stack: threads may have only 16 KiB
  static constexpr uint64_t kMostShelfBytes = 256 << 10;
  static constexpr uint64_t kFewestRanges = 16;
  static constexpr uint64_t kLargestKept = 64 << 20;

  // Only the owner calls these; between them it has the cache to itself. Outside them not even a shelf's
  // count may be read: another thread may be emptying it.
  void enter() {
    if (!try_enter()) enter_slowly();
  }
  [[gnu::always_inline]] void exit() { fence_.exit_plainly(busy_); }
  // False: another thread has the cache, or may have it; not entered.
  [[gnu::always_inline]] bool try_enter() {
    if (fence_.try_enter(busy_)) [[likely]]
      return true;
    exit();
    return false;
  }

  // The newest block of a class; false when there is none. pre: any stamp may be handed out now.
  [[gnu::always_inline]] bool take_newest(unsigned size_class, Entry* out) {
    Shelf& shelf = shelves_[size_class];
    if (shelf.count == 0) [[unlikely]]
      return false;
    *out = shelf.pop_newest();
    bytes_of(size_class) -= shelf.block_bytes;
    return true;
  }
  // Around a longer use of the pool by the owner; the end of the context waits for it. The waiting thread
  // calls AsymmetricFence::order_all_threads() before is_in_use().
  void begin_use() {
    in_use_.store(true, std::memory_order_relaxed);
    AsymmetricFence::order_this_thread();
  }
  void end_use() { in_use_.store(false, std::memory_order_release); }
  bool is_in_use() const { return in_use_.load(std::memory_order_acquire); }

  // A block that may be handed out now; false when there is none. Its stamp is 0 if no work was pending.
  bool take(unsigned size_class, order::Reach reach, Entry* out) {
    const Epoch limit = order().limit(reach);
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
  // The same with the higher limit under several streams: a block that cannot be handed out yet gains nothing
  // from being merged, so the thread may as well keep it.
  bool put_more(unsigned size_class, const Entry& entry) {
    const bool more = is_range(size_class) != 0 && order().is_spread();
    return put_within(more ? most_unsafe_ : most_[is_range(size_class)], size_class, entry);
  }
  KeptLarge& large() { return large_; }
  // The size of a block that is in the cache, just left it, or is about to enter.
  uint64_t kept_bytes(unsigned size_class, const Entry& entry) const {
    return size_class != kNotKept ? shelves_[size_class].block_bytes : entry.range->bytes;
  }
  // Adds blocks that came from a slab: older than everything on the shelf.
  void put_oldest(unsigned size_class, const Entry* entries, size_t count);
  // How many blocks of this class to fetch when one is needed; the others fit on the shelf.
  uint32_t batch(unsigned size_class) {
    const uint32_t room = prepare(size_class);
    return std::max(1u, std::min(room / 2, room - shelves_[size_class].count + 1));
  }
  // Makes the shelf if there is none; returns its room, 0 when this class is not kept at all.
  uint32_t prepare(unsigned size_class);
  // Doubles a full shelf of ranges where blocks have to wait before they can be handed out. False: unchanged.
  bool widen(unsigned size_class);

  // Counts what this thread handed out and took back; other threads read it.
  stats::ThreadTally& tally() { return tally_; }
  const stats::ThreadTally& tally() const { return tally_; }
  // Notes a free while work is pending. Whether this thread has freed so much in the open epoch that a seal
  // is worth its cost.
  bool seal_is_due(uint64_t bytes, uint32_t most_frees, uint64_t most_bytes) {
    const Epoch open = order().open();
    if (open != unsealed_.epoch) unsealed_ = {open, 0, 0};
    unsealed_.bytes += bytes;
    return ++unsealed_.frees >= most_frees || unsealed_.bytes >= most_bytes;
  }
  // Whether this thread has submitted no work since its last free.
  void note_free() {
    work_at_free_ = Reentry::work();
    freed_in_ = order().open();
  }
  // The epoch of its last free while work was pending.
  Epoch freed_in() const { return freed_in_; }
  bool has_just_freed() const { return work_at_free_ == Reentry::work(); }

  // The pool's timeline. Changes only while the pool is closed.
  order::Timeline& order() const { return *order_.load(std::memory_order_relaxed); }
  void set_order(order::Timeline& order) { order_.store(&order, std::memory_order_relaxed); }

  // Moves blocks to `out`, which has room for kMostMoved, until `keep` are left; returns how many. Fewer than
  // kMostMoved: those were all. For the owner, or the thread that stopped it.
  size_t remove_oldest(unsigned size_class, uint32_t keep, Entry* out);

  // Notes a block that found no room. Whether, after a few of them, another class should give way.
  bool note_misfit() {
    constexpr unsigned kMisfitsATurn = 8;
    return ++misfits_ % kMisfitsATurn == 0;
  }
  // How many bytes of ranges the thread keeps. Kept ranges cannot be merged, so a thread that also asks for
  // larger blocks keeps few; one that has not for long may keep more, up to `bytes`, and fewer when memory is
  // short. Between enter() and exit(), or while the owner is stopped.
  void keep_few_ranges() { allow_ranges(0); }
  void keep_fewer_ranges() { allow_ranges(most_[1] / 2); }
  void keep_more_ranges(uint64_t bytes) {
    constexpr unsigned kPatience = 64;
    // Doubling may overflow.
    const uint64_t most = std::max(most_[0], most_[0] * 2);
    if (misfits_ - calm_since_ >= kPatience) most_[1] = std::clamp(bytes, most_[0] / 4, most);
  }
  // Round robin: another non-empty class of the same kind, so that unused ones give way; kNotKept: there is
  // none. Owner only.
  unsigned next_to_empty(unsigned size_class);

  const Shelf& shelf(unsigned size_class) const { return shelves_[size_class]; }
  Pool* pool() const { return pool_; }
  const SizeClasses& sizes() const { return sizes_; }
  // The pool uses these fine classes. Owner only: nobody else asks for the class of a size.
  void use_fine(const SizeClasses::Mask& which) { sizes_.use_fine(which); }

  // From any thread: keeps the owner out until start(). Two threads must not stop the same cache (the pool's
  // cache lock).
  void stop();
  // The same of several caches with one barrier: begin_stop() of each, AsymmetricFence::order_all_threads(),
  // end_stop() of each, and AsymmetricFence::order_exits().
  void begin_stop() { fence_.begin_close(); }
  void end_stop(bool is_ordered);
  // From any thread: whether anything is kept. A block whose free the asking thread knows of is seen. Reads
  // beside the owner's plain stores: an atomic store would cost the owner an instruction in every pair.
  [[gnu::no_sanitize_thread]] bool is_empty() const {
    return __atomic_load_n(&bytes_[0], __ATOMIC_RELAXED) == 0 &&
           __atomic_load_n(&bytes_[1], __ATOMIC_RELAXED) == 0 && large_.bytes() == 0;
  }
  void start() { fence_.open(); }

  ThreadCache(Pool* pool, const SizeClasses& sizes, const Settings& settings, stats::Device& device,
              order::Timeline& order)
      : pool_(pool),
        order_(&order),
        most_{settings.thread_cache, settings.thread_cache / 4},
        most_unsafe_(std::max(settings.thread_cache, settings.many_budget / 32) * 4),
        tally_(device),
        sizes_(sizes) {
    fence_.prepare();
    device.enlist(tally_);
  }

  ThreadCache* next_of_pool = nullptr;    // under the pool's cache lock
  ThreadCache* next_of_thread = nullptr;  // owner only
  ThreadCache* next_stopped = nullptr;    // under the pool's cache lock
  ThreadCache* next_abandoned = nullptr;  // its thread has ended; under the pool's cache lock

 private:
  void enter_slowly();
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

  std::atomic<bool> busy_{false};
  std::atomic<bool> in_use_{false};
  AsymmetricFence fence_;  // closed: another thread has the cache
  Pool* pool_;
  std::atomic<order::Timeline*> order_;
  std::array<uint64_t, 2> bytes_{};  // kept: small blocks, ranges
  std::array<uint64_t, 2> most_;
  uint64_t most_unsafe_;
  std::array<unsigned, 2> cursors_{};
  unsigned misfits_ = 0;
  unsigned calm_since_ = 0;  // misfits_ when ranges last had to be given up
  // What this thread freed in an epoch. Owner only, like work_at_free_.
  struct Unsealed {
    Epoch epoch = 0;
    uint64_t bytes = 0;
    uint32_t frees = 0;
  };
  Unsealed unsealed_;
  uint64_t work_at_free_ = ~uint64_t{0};
  Epoch freed_in_ = 0;
  KeptLarge large_;
  stats::ThreadTally tally_;
  std::array<Shelf, SizeClasses::kMostClasses> shelves_{};
  SizeClasses sizes_;  // a copy: one indirection less on the hot path
};

}  // namespace cupool::pool
