// Vector clocks: the one notion of order in the simulated driver. A timeline is a stream's own count of
// operations; a clock says, for every timeline, up to which operation everything has happened before.
// The scheduler and the oracle read the same clocks, so what may run and what is ordered cannot disagree.
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

  void raise(TimelineId timeline, std::uint64_t position) {
    if (at_.size() <= timeline) at_.resize(timeline + 1, 0);
    if (at_[timeline] < position) at_[timeline] = position;
  }

  void join(const VectorClock& other) {
    if (at_.size() < other.at_.size()) at_.resize(other.at_.size(), 0);
    for (std::size_t i = 0; i < other.at_.size(); ++i) {
      if (at_[i] < other.at_[i]) at_[i] = other.at_[i];
    }
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
  std::vector<std::uint64_t> at_;
};

}  // namespace cupool::sim
