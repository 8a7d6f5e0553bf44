// Which lanes have done what was asked of them: waited for a seal, or found that they need not. Written under
// the timeline's lock, read without it before every submission. A lane that is not found has to ask again
// under the lock: forgetting one costs a call, never correctness, so the table is small and two lanes that
// share a slot push each other out.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "order/lane.hpp"

namespace cupool::order {

class WaitedLanes {
 public:
  // Whether `lane` has done all that was asked up to demand number `demand`. The lane is read again after the
  // number: a slot that changed hands in between is not taken for the lane's own. If it came back to the lane
  // meanwhile, the lane has asked anew, and for a demand that is no older.
  bool has(Lane lane, uint64_t demand) const {
    const Slot& slot = slots_[index(lane)];
    if (slot.lane.load(std::memory_order_acquire) != lane) return false;
    const uint64_t met = slot.met.load(std::memory_order_acquire);
    return met >= demand && slot.lane.load(std::memory_order_acquire) == lane;
  }

  // ---- Under the timeline's lock.

  // Whether all later work of `lane` comes after the seal of `epoch`.
  bool covers(Lane lane, Epoch epoch) const {
    const Slot& slot = slots_[index(lane)];
    return slot.lane.load(std::memory_order_relaxed) == lane && slot.epoch >= epoch;
  }
  // After the wait, if there is one: demand `demand` is met, which took a wait for the seal of `epoch`.
  void set(Lane lane, uint64_t demand, Epoch epoch) {
    Slot& slot = slots_[index(lane)];
    const Lane before = slot.lane.load(std::memory_order_relaxed);
    if (before != lane) {
      slot.met.store(0, std::memory_order_release);
      slot.lane.store(lane, std::memory_order_release);
      slot.epoch = 0;
      if (before == Lane::kNone) ++count_;
    }
    if (epoch > slot.epoch) slot.epoch = epoch;
    slot.met.store(demand, std::memory_order_release);
  }
  void drop(Lane lane) {
    Slot& slot = slots_[index(lane)];
    if (slot.lane.load(std::memory_order_relaxed) != lane) return;
    clear(slot);
    --count_;
  }
  void drop_all() {
    for (Slot& slot : slots_) clear(slot);
    count_ = 0;
  }
  // How many lanes there are that had to wait, about.
  size_t count() const { return count_; }

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    std::atomic<Lane> lane{Lane::kNone};
    std::atomic<uint64_t> met{0};
    Epoch epoch = 0;
  };

  static void clear(Slot& slot) {
    slot.met.store(0, std::memory_order_release);
    slot.lane.store(Lane::kNone, std::memory_order_release);
    slot.epoch = 0;
  }
  static size_t index(Lane lane) {
    const auto bits = static_cast<uint64_t>(lane) >> 3;
    return (bits ^ bits >> 6 ^ bits >> 13) % kSlots;
  }

  std::array<Slot, kSlots> slots_{};
  size_t count_ = 0;
};

}  // namespace cupool::order
