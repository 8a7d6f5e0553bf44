// Free ranges in an order, found in logarithmic time: a treap whose nodes are fields of the ranges
// themselves, with what searches by time need to know of each subtree. A range's priority is a hash of its
// address, so that a tree depends only on what is in it. Owns no memory; the caller's lock protects it. What
// a range is ordered by, and its stamp, must not change while it is in a tree.
//
// An order has: `node(Range&)`, the range's node, a TimedNode where searches ask for a stamp; and `bool
// less(const Range&, const Range&)`, which tells any two ranges apart.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "pool/range.hpp"

namespace cupool::pool {

template <typename Order>
class RangeTree {
 public:
  constexpr RangeTree() = default;

  bool is_empty() const { return root_ == nullptr; }
  void insert(Range* range) {
    node(*range).lower = node(*range).higher = nullptr;
    sum_up(*range);
    // Nearly always a bin has a range or two.
    if (root_ == nullptr) {
      root_ = range;
      return;
    }
    Range** place = &root_;
    const uint64_t priority = priority_of(*range);
    while (*place != nullptr && priority_of(**place) >= priority) {
      Range& here = **place;
      note(here, range->stamp);
      place = Order::less(*range, here) ? &node(here).lower : &node(here).higher;
    }
    split(*place, *range, &node(*range).lower, &node(*range).higher);
    sum_up(*range);
    *place = range;
  }
  // pre: it is in here.
  void remove(Range* range) { root_ = without(root_, *range); }
  void clear() { root_ = nullptr; }

  Range* lowest() const { return end_of(&RangeNode::lower); }
  Range* highest() const { return end_of(&RangeNode::higher); }
  // The newest stamp in here; 0: there is none.
  Epoch latest() const { return root_ == nullptr ? 0 : node(*root_).latest; }
  // The lowest range that is not below a bound and whose stamp is at most `limit`. `is_below(range)` is true
  // up to some place in the order, then false.
  template <typename Below>
  Range* first(Below&& is_below, Epoch limit) const {
    return first_in(root_, is_below, limit);
  }
  // Of the ranges between two bounds, the one with the oldest stamp, if that is at most `limit`.
  template <typename Below, typename Above>
  Range* oldest(Below&& is_below, Above&& is_above, Epoch limit) const {
    Oldest found{nullptr, limit};
    find_oldest(root_, is_below, is_above, &found);
    return found.range;
  }
  // Calls `f(Range*)` in order until it returns true, which is returned. It may remove that one, no other.
  template <typename Below, typename F>
  bool visit(Below&& is_below, F&& f) const {
    return visit_in(root_, is_below, f);
  }

 private:
  using Node = std::remove_reference_t<decltype(Order::node(std::declval<Range&>()))>;
  static constexpr bool kTimed = std::is_same_v<Node, TimedNode>;
  struct Oldest {
    Range* range;
    Epoch limit;
  };

  static Node& node(Range& range) { return Order::node(range); }
  static uint64_t priority_of(const Range& range) {
    const uint64_t mixed = (range.start >> kGranuleShift) * 0x9e3779b97f4a7c15;
    return (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
  }
  static void note(Range& range, Epoch stamp) {
    if constexpr (kTimed) {
      Node& own = node(range);
      own.earliest = std::min(own.earliest, stamp);
      own.latest = std::max(own.latest, stamp);
    }
  }
  static void sum_up(Range& range) {
    if constexpr (kTimed) {
      Node& own = node(range);
      own.earliest = own.latest = range.stamp;
      for (Range* const child : {own.lower, own.higher}) {
        if (child == nullptr) continue;
        own.earliest = std::min(own.earliest, node(*child).earliest);
        own.latest = std::max(own.latest, node(*child).latest);
      }
    }
  }
  // Parts a tree at a range that is not in it.
  static void split(Range* root, const Range& at, Range** lower, Range** higher) {
    if (root == nullptr) {
      *lower = *higher = nullptr;
    } else if (Order::less(*root, at)) {
      *lower = root;
      split(node(*root).higher, at, &node(*root).higher, higher);
      sum_up(*root);
    } else {
      *higher = root;
      split(node(*root).lower, at, lower, &node(*root).lower);
      sum_up(*root);
    }
  }
  static Range* joined(Range* lower, Range* higher) {
    if (lower == nullptr) return higher;
    if (higher == nullptr) return lower;
    Range* const root = priority_of(*lower) >= priority_of(*higher) ? lower : higher;
    if (root == lower) {
      node(*root).higher = joined(node(*root).higher, higher);
    } else {
      node(*root).lower = joined(lower, node(*root).lower);
    }
    sum_up(*root);
    return root;
  }
  static Range* without(Range* root, Range& gone) {
    if (root == &gone) return joined(node(gone).lower, node(gone).higher);
    Range*& child = Order::less(gone, *root) ? node(*root).lower : node(*root).higher;
    child = without(child, gone);
    sum_up(*root);
    return root;
  }
  Range* end_of(Range* RangeNode::*side) const {
    Range* last = root_;
    while (last != nullptr && node(*last).*side != nullptr) last = node(*last).*side;
    return last;
  }
  // A subtree is left in vain only along the bound: elsewhere, one that is old enough has a range that is.
  template <typename Below>
  static Range* first_in(Range* root, Below& is_below, Epoch limit) {
    while (root != nullptr && node(*root).earliest <= limit) {
      if (!is_below(*root)) {
        if (Range* const lower = first_in(node(*root).lower, is_below, limit)) return lower;
        if (root->stamp <= limit) return root;
      }
      root = node(*root).higher;
    }
    return nullptr;
  }
  template <typename Below, typename Above>
  static void find_oldest(Range* root, Below& is_below, Above& is_above, Oldest* found) {
    // Of equal stamps the first in order.
    const auto is_better = [found](Epoch stamp) {
      return found->range == nullptr ? stamp <= found->limit : stamp < found->range->stamp;
    };
    while (root != nullptr && is_better(node(*root).earliest)) {
      if (is_below(*root)) {
        root = node(*root).higher;
        continue;
      }
      find_oldest(node(*root).lower, is_below, is_above, found);
      if (is_above(*root)) return;
      if (is_better(root->stamp)) found->range = root;
      root = node(*root).higher;
    }
  }
  template <typename Below, typename F>
  static bool visit_in(Range* root, Below& is_below, F& f) {
    while (root != nullptr) {
      Range* const higher = node(*root).higher;
      if (!is_below(*root) && (visit_in(node(*root).lower, is_below, f) || f(root))) return true;
      root = higher;
    }
    return false;
  }

  Range* root_ = nullptr;
};

}  // namespace cupool::pool
