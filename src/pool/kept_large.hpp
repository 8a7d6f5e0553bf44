// The one large block that a thread keeps: the last one freed, if the thread seems to be in a loop that will
// ask for just that size again. Any other had better be merged: its hole serves other sizes as well, and the
// best fit may be elsewhere. Part of a thread's cache and under the same rules, but for what is noted: only
// the owner reads or writes that.
#pragma once

#include <utility>

#include "pool/slabs.hpp"

namespace cupool::pool {

class KeptLarge {
 public:
  // False: none of this size is kept. pre: it may be handed out, whatever its stamp.
  [[gnu::always_inline]] bool take(uint64_t bytes, Entry* out) {
    if (kept_.range == nullptr || kept_.range->bytes != bytes) return false;
    *out = kept_;
    kept_.range = nullptr;
    return true;
  }
  Epoch stamp() const { return kept_.stamp; }
  // False: one is kept already, or this one is larger than `most`, or no loop is expected.
  [[gnu::always_inline]] bool put(uint64_t most, const Entry& entry) {
    if (kept_.range != nullptr || entry.range->bytes > most || !expects(entry.range)) return false;
    kept_ = entry;
    return true;
  }
  // Keeps `entry`, and returns the one that was kept till now; its range is null if there was none.
  Entry swap(const Entry& entry) { return std::exchange(kept_, entry); }

  // A loop frees what it was given last, or asks again and again for the size it has just freed.
  bool expects(const Range* range) const { return range == newest_ || repeats_ >= kRepeats; }
  // Of blocks that were not kept.
  void note_taken(const Range* range) {
    newest_ = range;
    repeats_ = range->bytes == freed_bytes_ ? repeats_ + 1 : 0;
  }
  void note_freed(const Range* range) { freed_bytes_ = range->bytes; }

 private:
  static constexpr unsigned kRepeats = 8;

  Entry kept_{};
  const Range* newest_ = nullptr;  // never read: the record may serve another range by now
  uint64_t freed_bytes_ = 0;
  unsigned repeats_ = 0;
};

}  // namespace cupool::pool
