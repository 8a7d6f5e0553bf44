// See graph_launches.hpp. A wait announces itself first, so that launches in a row cannot keep it out.
#include "order/graph_launches.hpp"

#include "base/after_fork.hpp"
#include "order/rules.hpp"

namespace cupool::order {

constinit std::array<GraphLaunches::Entry, GraphLaunches::kMost> GraphLaunches::entries_{};

namespace {

CUPOOL_AFTER_FORK(forget_graph_launches, &GraphLaunches::forget_after_fork);

}  // namespace

GraphLaunches::Entry* GraphLaunches::find_locked(Place place) {
  for (size_t i = 0; i < used_; ++i) {
    if (entries_[i].place == place) return &entries_[i];
  }
  return nullptr;
}

// Null: all entries are in use.
GraphLaunches::Entry* GraphLaunches::find_or_add_locked(Place place) {
  if (Entry* const known = find_locked(place)) return known;
  Entry* entry = find_locked({});
  if (entry == nullptr && used_ < kMost) entry = &entries_[used_++];
  if (entry != nullptr) entry->place = place;
  return entry;
}

void GraphLaunches::begin_launch(Place place) {
  for (int turn = 0;; ++turn) {
    {
      Guard hold(lock_);
      Entry* const entry = find_or_add_locked(place);
      if (entry != nullptr && (entry->waits == 0 || !kGraphsApart)) {
        ++entry->launches;
        return;
      }
    }
    Lock::wait_a_little(turn);
  }
}

void GraphLaunches::begin_wait(Place place) {
  bool is_announced = false;
  for (int turn = 0;; ++turn) {
    {
      Guard hold(lock_);
      Entry* const entry = find_or_add_locked(place);
      if (entry != nullptr && !is_announced) {
        ++entry->waits;
        is_announced = true;
      }
      if (is_announced && (entry->launches == 0 || !kGraphsApart)) return;
    }
    Lock::wait_a_little(turn);
  }
}

void GraphLaunches::end(Place place, uint32_t Entry::*count) {
  Guard hold(lock_);
  Entry* const entry = find_locked(place);
  --(entry->*count);
  if (entry->launches != 0 || entry->waits != 0) return;
  *entry = {};
  while (used_ != 0 && entries_[used_ - 1].place == Place{}) --used_;
}

void GraphLaunches::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  entries_ = {};
  used_ = 0;
}

}  // namespace cupool::order
