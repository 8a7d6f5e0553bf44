// Lists of segments of which no range is handed out, under the lock of Ranges.
#pragma once

#include <array>

#include "pool/range.hpp"
#include "pool/range_bytes.hpp"

namespace cupool::pool {

// Those of the driver's that may serve again, though work may be pending on them: what could go back is found
// without a look at all others. The one that has been idle for longest comes first.
class IdleSegments {
 public:
  explicit IdleSegments(RangeBytes& bytes) : bytes_(bytes) {}

  void add(Segment* segment) {
    segment->prev_ripe = last_;
    segment->next_ripe = nullptr;
    (last_ != nullptr ? last_->next_ripe : first_) = segment;
    last_ = segment;
    bytes_.add_idle(segment->bytes);
  }
  void remove(Segment* segment) {
    (segment->prev_ripe != nullptr ? segment->prev_ripe->next_ripe : first_) = segment->next_ripe;
    (segment->next_ripe != nullptr ? segment->next_ripe->prev_ripe : last_) = segment->prev_ripe;
    bytes_.remove_idle(segment->bytes);
  }
  void clear() { first_ = last_ = nullptr; }
  // Null: there is none that `accept` wants.
  template <typename Accept>
  Segment* first(Accept&& accept) const {
    Segment* segment = first_;
    while (segment != nullptr && !accept(*segment)) segment = segment->next_ripe;
    return segment;
  }

 private:
  Segment* first_ = nullptr;
  Segment* last_ = nullptr;
  RangeBytes& bytes_;
};

// Those that are tainted and wholly free: they only wait to go back. Those of the driver's and mapped ones
// apart, each with the oldest work first.
class RipeSegments {
 public:
  // Segments ripen nearly in the order of their work, so hardly any is passed.
  void add(Segment* segment) {
    List& list = lists_[segment->mapped ? 1 : 0];
    Segment* before = list.last;
    while (before != nullptr && before->lowest()->stamp > segment->lowest()->stamp)
      before = before->prev_ripe;
    segment->prev_ripe = before;
    segment->next_ripe = before != nullptr ? before->next_ripe : list.first;
    (before != nullptr ? before->next_ripe : list.first) = segment;
    (segment->next_ripe != nullptr ? segment->next_ripe->prev_ripe : list.last) = segment;
  }
  // Null: there is none of the kind.
  Segment* oldest(bool is_mapped) const { return lists_[is_mapped ? 1 : 0].first; }
  void remove(Segment* segment) {
    List& list = lists_[segment->mapped ? 1 : 0];
    (segment->prev_ripe != nullptr ? segment->prev_ripe->next_ripe : list.first) = segment->next_ripe;
    (segment->next_ripe != nullptr ? segment->next_ripe->prev_ripe : list.last) = segment->prev_ripe;
  }
  void clear() { lists_ = {}; }

 private:
  struct List {
    Segment* first = nullptr;
    Segment* last = nullptr;
  };
  std::array<List, 2> lists_{};  // of the driver's, of mapped ones
};

}  // namespace cupool::pool
