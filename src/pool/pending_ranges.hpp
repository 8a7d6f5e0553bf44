// Ranges that were freed and may not be handed out yet, in three orders: by size, by the only lane that has
// worked on them and then by size, and by time. Owns no memory: trees are made of the ranges' own fields. The
// caller's lock protects it.
#pragma once

#include <algorithm>

#include "pool/bins.hpp"
#include "pool/range_tree.hpp"

namespace cupool::pool {

class PendingRanges {
 public:
  constexpr PendingRanges() = default;

  void insert(Range* range) {
    by_size_.insert(range);
    by_time_.insert(range);
    if (range->sole != order::LaneName::kNone) by_lane_.insert(range);
  }
  void remove(Range* range) {
    by_size_.remove(range);
    by_time_.remove(range);
    if (range->sole != order::LaneName::kNone) by_lane_.remove(range);
  }
  void clear() { *this = {}; }

  // Which was freed first, or last; null: there is none.
  Range* oldest() const { return by_time_.lowest(); }
  Range* newest() const { return by_time_.highest(); }
  uint64_t largest() const {
    const Range* const range = by_size_.highest();
    return range == nullptr ? 0 : range->bytes;
  }
  // The best fit of at least `bytes`, and at most `most`, whose stamp is at most `limit`; of those that fit
  // as well, the one freed first. `sole`: only ranges that no other lane has worked on.
  Range* best_fit(uint64_t bytes, uint64_t most, Epoch limit, order::LaneName sole) const {
    if (sole == order::LaneName::kNone) {
      const auto is_below = [bytes](const Range& range) { return range.bytes < bytes; };
      const Range* const best = by_size_.first(is_below, limit);
      if (best == nullptr || best->bytes > most) return nullptr;
      const uint64_t as_good = std::min(most, best->bytes + least_difference(bytes));
      return by_size_.oldest(
          is_below, [=](const Range& range) { return range.bytes > as_good; }, limit);
    }
    const auto is_below = [=](const Range& range) {
      return range.sole != sole ? range.sole < sole : range.bytes < bytes;
    };
    const Range* const best = by_lane_.first(is_below, limit);
    if (best == nullptr || best->sole != sole || best->bytes > most) return nullptr;
    const uint64_t as_good = std::min(most, best->bytes + least_difference(bytes));
    return by_lane_.oldest(
        is_below,
        [=](const Range& range) { return range.sole != sole ? sole < range.sole : range.bytes > as_good; },
        limit);
  }
  // Calls `f(Range*)`, the one freed first first, until it returns true. It may remove that one, no other.
  template <typename F>
  void visit(F&& f) const {
    by_time_.visit([](const Range&) { return false; }, f);
  }

 private:
  struct ByLane {
    static TimedNode& node(Range& range) { return range.by_lane; }
    static bool less(const Range& a, const Range& b) {
      return a.sole != b.sole ? a.sole < b.sole : BySize::less(a, b);
    }
  };
  struct ByTime {
    static RangeNode& node(Range& range) { return range.by_time; }
    static bool less(const Range& a, const Range& b) {
      return a.stamp != b.stamp ? a.stamp < b.stamp : a.start < b.start;
    }
  };

  // Ranges that differ by less fit as well. Not more: the larger one may be just what another block needs.
  static uint64_t least_difference(uint64_t bytes) { return bytes / 1024; }

  RangeTree<BySize> by_size_;
  RangeTree<ByLane> by_lane_;
  RangeTree<ByTime> by_time_;
};

}  // namespace cupool::pool
