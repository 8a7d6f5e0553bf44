// Whose turn it is: the lane that was given work last. A block that was taken and freed within one turn was
// used by that lane alone, whatever else is under way. Read without a lock; changed under the timeline's, and
// only where a lane takes over, so a program with one stream never comes here twice. A program in which lanes
// take over all the time, to no use, is not watched any longer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "order/lane.hpp"
#include "order/rules.hpp"

namespace cupool::order {

// A lane under a number that never returns, unlike a stream's handle.
enum class LaneName : uint16_t { kNone = 0 };

class Turns {
 public:
  // The number of the present turn, for sole_since().
  uint64_t now() const { return number_.load(std::memory_order_acquire); }
  LaneName name() const { return name_.load(std::memory_order_acquire); }
  // The one lane that was given work since `taken`; none where there were several, or nobody watched. The
  // name is read first: one of a later turn would show in the number.
  LaneName sole_since(uint64_t taken) const {
    const LaneName name = name_.load(std::memory_order_acquire);
    return number_.load(std::memory_order_acquire) == taken ? name : LaneName::kNone;
  }
  // Whether nothing is to be done for work that was submitted to `lane`.
  bool has(Lane lane) const {
    const Lane present = lane_.load(std::memory_order_acquire);
    return present == lane || present == Lane::kMany || (present != Lane::kNone && !kTurn);
  }
  // It was of use: a block was handed out that needed no wait for this.
  void note_use() { wasted_.store(0, std::memory_order_relaxed); }

  // ---- Under the timeline's lock.

  // A lane takes over. A turn that nobody has begun is its turn from the start.
  void change(Lane lane) {
    if (lane_.load(std::memory_order_relaxed) != Lane::kNone || lane == Lane::kMany) leave_open();
    const uint32_t wasted = wasted_.load(std::memory_order_relaxed);
    wasted_.store(wasted + 1, std::memory_order_relaxed);
    if (wasted >= kMostWasted || names_ == kMostNames) {
      lane_.store(Lane::kMany, std::memory_order_release);
    } else if (lane != Lane::kMany) {
      name_.store(name_of(lane), std::memory_order_release);
      lane_.store(lane, std::memory_order_release);
    }
  }
  // The turn is over; the next one is that of whoever is given work first. The number goes up between the two
  // lanes: a block that is taken in the new turn finds nobody's lane there, so that all its work is seen.
  void leave_open() {
    name_.store(LaneName::kNone, std::memory_order_release);
    lane_.store(Lane::kNone, std::memory_order_release);
    number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The handle may come back for another stream: that one gets another name.
  void destroy(Lane lane) {
    for (Named& one : known_) {
      if (one.lane == lane && kDropName) one = {};
    }
    if (lane_.load(std::memory_order_relaxed) == lane) leave_open();
  }
  // None: it has not been this lane's turn, or long ago.
  LaneName find(Lane lane) const {
    for (const Named& one : known_) {
      if (one.lane == lane) return one.name;
    }
    return LaneName::kNone;
  }

 private:
  struct Named {
    Lane lane = Lane::kNone;
    LaneName name = LaneName::kNone;
  };
  static constexpr uint32_t kMostWasted = 4096;
  static constexpr uint16_t kMostNames = 0xffff;

  LaneName name_of(Lane lane) {
    const LaneName known = find(lane);
    if (known != LaneName::kNone) return known;
    const LaneName made{++names_};
    known_[next_++ % known_.size()] = {lane, made};
    return made;
  }

  std::atomic<Lane> lane_{Lane::kNone};
  std::atomic<LaneName> name_{LaneName::kNone};
  std::atomic<uint32_t> wasted_{0};  // changes since it was of use
  std::atomic<uint64_t> number_{0};
  uint16_t names_ = 0;
  size_t next_ = 0;
  std::array<Named, 8> known_{};
};

}  // namespace cupool::order
