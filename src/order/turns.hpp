// Whose turn it is: the lane that was given work last. A block taken and freed within one turn was used by
// that lane alone, whatever else is pending. Read without a lock; changed under the timeline's, only when
// another lane takes over, so a program with one stream changes it once. If lanes keep taking over and blocks
// do not profit, tracking stops.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "order/lane.hpp"
#include "order/rules.hpp"

namespace cupool::order {

// A name for a lane that is never reused, unlike a stream's handle.
enum class LaneName : uint16_t { kNone = 0 };

class Turns {
 public:
  // The number of the current turn, for sole_since().
  uint64_t now() const { return number_.load(std::memory_order_acquire); }
  LaneName name() const { return name_.load(std::memory_order_acquire); }
  // Whose turn it is and which piece of work began it; no name: the turn is open, or just changing. For a
  // guess.
  struct Present {
    uint64_t number = 0;
    LaneName name = LaneName::kNone;
    uint64_t began = 0;
  };
  Present present() const {
    const Present seen{now(), name(), began_.load(std::memory_order_acquire)};
    return now() == seen.number ? seen : Present{seen.number};
  }
  // The only lane given work since `taken`; none if there were several, or tracking has stopped. The name is
  // read first: if it were a later turn's, the number would differ.
  LaneName sole_since(uint64_t taken) const {
    const LaneName name = name_.load(std::memory_order_acquire);
    return number_.load(std::memory_order_acquire) == taken ? name : LaneName::kNone;
  }
  // Whether work submitted to `lane` leaves the turn as it is.
  bool has(Lane lane) const {
    const Lane present = lane_.load(std::memory_order_acquire);
    return present == lane || present == Lane::kMany || (present != Lane::kNone && !kTurn);
  }
  // Tracking paid off: a block was handed out without a wait because of it.
  void note_use() { wasted_.store(0, std::memory_order_relaxed); }
  // Tracking could have paid off: a block was used in one turn, though on a device that keeps up no stream
  // had to wait. Concurrent changes may get lost.
  void note_chance() {
    const uint32_t wasted = wasted_.load(std::memory_order_relaxed);
    if (wasted != 0) wasted_.store(wasted - 1, std::memory_order_relaxed);
  }

  // ---- Under the timeline's lock.

  // A lane takes over with a piece of work, whose mark is given. An open turn becomes its turn from the
  // start.
  void change(Lane lane, uint64_t mark = 0) {
    if (lane_.load(std::memory_order_relaxed) != Lane::kNone || lane == Lane::kMany) leave_open();
    const uint32_t wasted = wasted_.load(std::memory_order_relaxed);
    wasted_.store(wasted + 1, std::memory_order_relaxed);
    if (wasted >= kMostWasted || names_ == kMostNames) {
      lane_.store(Lane::kMany, std::memory_order_release);
    } else if (lane != Lane::kMany) {
      began_.store(mark, std::memory_order_release);
      name_.store(name_of(lane), std::memory_order_release);
      lane_.store(lane, std::memory_order_release);
    }
  }
  // Ends the turn; the next one belongs to the first lane given work. The number goes up between the two
  // lanes: a block taken in the new turn finds no lane there, so all its work is seen.
  void leave_open() {
    name_.store(LaneName::kNone, std::memory_order_release);
    lane_.store(Lane::kNone, std::memory_order_release);
    number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The handle may be reused for another stream, which gets another name.
  void destroy(Lane lane) {
    for (Named& one : known_) {
      if (one.lane == lane && kDropName) one = {};
    }
    if (lane_.load(std::memory_order_relaxed) == lane) leave_open();
  }
  // None: this lane has had no turn, or long ago.
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
  std::atomic<uint32_t> wasted_{0};  // changes since tracking last paid off
  std::atomic<uint64_t> number_{0};
  std::atomic<uint64_t> began_{0};
  uint16_t names_ = 0;
  size_t next_ = 0;
  std::array<Named, 32> known_{};  // of more streams than that, each turn takes a new name
};

}  // namespace cupool::order
