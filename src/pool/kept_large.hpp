// The one large block that a thread keeps: the last one freed, if the thread seems to be in a loop that will
// ask for the same size again. Any other is better merged: then it serves other sizes too, and the best fit
// may be elsewhere. Part of a thread cache and under the same rules, except that only the owner touches the
// loop history.
#pragma once

#include <atomic>
#include <utility>

#include "pool/slabs.hpp"

namespace cupool::pool {

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
  // Keeps `entry`, and returns the block kept until now; its range is null if there was none.
  Entry swap(const Entry& entry) {
    bytes_.store(entry.range != nullptr ? entry.range->bytes : 0, std::memory_order_relaxed);
    return std::exchange(kept_, entry);
  }
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

  Entry kept_{};
  std::atomic<uint64_t> bytes_{0};
  const Range* newest_ = nullptr;  // compared only, never dereferenced: the record may have been reused
  uint64_t freed_bytes_ = 0;
  unsigned repeats_ = 0;
};

}  // namespace cupool::pool
