// The one large block that a thread keeps: the last one freed, if the thread seems to be in a loop that will
// ask for the same size again. Any other is better merged: then it serves other sizes too, and the best fit
// may be elsewhere. Part of a thread cache and under the same rules, except that only the owner touches the
// loop history. Closed, it keeps nothing until its owner opens it: see ThreadCaches::enter_to_put().
#pragma once

#include <atomic>
#include <utility>

#include "pool/slabs.hpp"

namespace cupool::pool {

// Stands in the place of a block where none is to be kept, with a size that nobody asks for.
struct NoRange : Range {
  constexpr NoRange() { bytes = 1; }
};

class KeptLarge {
 public:
  // False: no block of this size is kept. pre: any stamp may be handed out now, or the caller checked
  // stamp().
  [[gnu::always_inline]] bool take(uint64_t bytes, Entry* out) {
    if (kept_.range == nullptr || kept_.range->bytes != bytes) return false;
    *out = kept_;
    kept_.range = nullptr;
    bytes_.store(0, std::memory_order_relaxed);
    return true;
  }
  Epoch stamp() const { return kept_.stamp; }
  // Its range is null if none is kept.
  const Entry& kept() const { return kept_; }
  // False: a block is kept already, this one is larger than `most`, or no loop is expected.
  [[gnu::always_inline]] bool put(uint64_t most, const Entry& entry) {
    if (kept_.range != nullptr || entry.range->bytes > most || !expects(entry.range)) return false;
    kept_ = entry;
    bytes_.store(entry.range->bytes, std::memory_order_relaxed);
    return true;
  }
  // Keeps `entry`, and returns the block kept until now; its range is null if there was none. Opens this.
  Entry replace(const Entry& entry) {
    bytes_.store(entry.range->bytes, std::memory_order_relaxed);
    return without_mark(std::exchange(kept_, entry));
  }
  // Gives up the block that is kept; its range is null if none is.
  Entry remove() { return is_closed() ? Entry{} : give_up({}); }
  // The same, and put() fails from now on.
  Entry close() { return without_mark(give_up({0, &closed_, 0, nullptr})); }
  // From any thread: the size of the block that is kept, or was a moment ago; 0: none.
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  // A loop frees the block it was given last, or keeps asking for the size it has just freed.
  bool expects(const Range* range) const { return range == newest_ || repeats_ >= kRepeats; }
  // The loop history: blocks that bypassed the cache.
  void note_taken(const Range* range) {
    newest_ = range;
    repeats_ = range->bytes == freed_bytes_ ? repeats_ + 1 : 0;
  }
  void note_freed(const Range* range) { freed_bytes_ = range->bytes; }

 private:
  static constexpr unsigned kRepeats = 8;

  bool is_closed() const { return kept_.range == &closed_; }
  static Entry without_mark(const Entry& entry) { return entry.range == &closed_ ? Entry{} : entry; }
  Entry give_up(const Entry& mark) {
    bytes_.store(0, std::memory_order_relaxed);
    return std::exchange(kept_, mark);
  }

  static inline constinit NoRange closed_{};

  Entry kept_{0, &closed_, 0, nullptr};
  std::atomic<uint64_t> bytes_{0};
  const Range* newest_ = nullptr;  // compared only, never dereferenced: the record may have been reused
  uint64_t freed_bytes_ = 0;
  unsigned repeats_ = 0;
};

}  // namespace cupool::pool
