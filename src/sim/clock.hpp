// Vector clocks: the one notion of order in the simulated driver. A timeline is a stream's own count of
// operations; a clock says, for every timeline, up to which operation everything has happened before.
// The scheduler and the oracle read the same clocks, so what may run and what is ordered cannot disagree.
// Beside it every clock keeps what it would be without the waits that a preloaded library added of its own:
// the two are joined alike, and differ only where such a wait was joined as added().
// Plain values without a lock: the owner of a clock guards it (in practice the state mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cupool::sim {

using TimelineId = std::uint32_t;

class VectorClock {
 public:
  std::uint64_t at(TimelineId timeline) const { return timeline < at_.size() ? at_[timeline] : 0; }

  // The same without added waits.
  std::uint64_t own_at(TimelineId timeline) const { return timeline < own_.size() ? own_[timeline] : 0; }

  void raise(TimelineId timeline, std::uint64_t position) {
    raise(at_, timeline, position);
    raise(own_, timeline, position);
  }

  void join(const VectorClock& other) {
    join(at_, other.at_);
    join(own_, other.own_);
  }

  // This clock as the reason of an added wait: nothing of it counts for what the program asked itself.
  VectorClock added() const {
    VectorClock result;
    result.at_ = at_;
    return result;
  }

  // True when everything this clock names lies at or before `other`.
  bool within(const VectorClock& other) const {
    for (std::size_t i = 0; i < at_.size(); ++i) {
      if (at_[i] > other.at(static_cast<TimelineId>(i))) return false;
    }
    return true;
  }

  std::size_t size() const { return at_.size(); }

 private:
  static void raise(std::vector<std::uint64_t>& at, TimelineId timeline, std::uint64_t position) {
    if (at.size() <= timeline) at.resize(timeline + 1, 0);
    if (at[timeline] < position) at[timeline] = position;
  }
  static void join(std::vector<std::uint64_t>& at, const std::vector<std::uint64_t>& other) {
    if (at.size() < other.size()) at.resize(other.size(), 0);
    for (std::size_t i = 0; i < other.size(); ++i) {
      if (at[i] < other[i]) at[i] = other[i];
    }
  }

  std::vector<std::uint64_t> at_;
  std::vector<std::uint64_t> own_;
};

}  // namespace cupool::sim
