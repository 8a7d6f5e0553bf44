// Which lanes have waited for which seal. Written under the timeline's lock, read without it before every
// submission. A lane that is not found has to ask again under the lock: forgetting one costs a call, never
// correctness, so the table is small and two lanes that share a slot push each other out.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "order/lane.hpp"

namespace cupool::order {

class WaitedLanes {
 public:
  // Whether all later work of `lane` comes after the seal of `epoch`. The lane is read again after the epoch:
  // a slot that changed hands in between is not taken for the lane's own. If it came back to the lane
  // meanwhile, the lane has waited anew, for a seal that is no older.
  bool has(Lane lane, Epoch epoch) const {
    const Slot& slot = slots_[index(lane)];
    if (slot.lane.load(std::memory_order_acquire) != lane) return false;
    const Epoch waited = slot.epoch.load(std::memory_order_acquire);
    return waited >= epoch && slot.lane.load(std::memory_order_acquire) == lane;
  }

  // Under the timeline's lock, after the wait.
  void set(Lane lane, Epoch epoch) {
    Slot& slot = slots_[index(lane)];
    const Lane before = slot.lane.load(std::memory_order_relaxed);
    if (before != lane) {
      slot.epoch.store(0, std::memory_order_release);
      slot.lane.store(lane, std::memory_order_release);
      if (before == Lane::kNone) ++count_;
    }
    slot.epoch.store(epoch, std::memory_order_release);
  }
  void drop(Lane lane) {
    Slot& slot = slots_[index(lane)];
    if (slot.lane.load(std::memory_order_relaxed) != lane) return;
    slot.epoch.store(0, std::memory_order_release);
    slot.lane.store(Lane::kNone, std::memory_order_release);
    --count_;
  }
  void drop_all() {
    for (Slot& slot : slots_) {
      slot.epoch.store(0, std::memory_order_release);
      slot.lane.store(Lane::kNone, std::memory_order_release);
    }
    count_ = 0;
  }
  // How many lanes there are that had to wait, about.
  size_t count() const { return count_; }

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    std::atomic<Lane> lane{Lane::kNone};
    std::atomic<Epoch> epoch{0};
  };

  static size_t index(Lane lane) {
    const auto bits = static_cast<uint64_t>(lane) >> 3;
    return (bits ^ bits >> 6 ^ bits >> 13) % kSlots;
  }

  std::array<Slot, kSlots> slots_{};
  size_t count_ = 0;
};

}  // namespace cupool::order
