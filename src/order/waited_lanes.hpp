// Which lanes have met what was demanded of them: waited for a seal, or found that they need not. Written
// under the timeline's lock, read without it before every submission. A lane that is not found asks again
// under the lock: forgetting one costs a call, never correctness, so the table is a small set-associative
// cache with eviction.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "order/lane.hpp"

namespace cupool::order {

class WaitedLanes {
 public:
  // Whether all later work of `lane` comes after the seal of `epoch`, and the lane has met the demands up to
  // number `demand`. The slot's lane is read again after both: a slot that changed hands in between does not
  // count. If it changed hands and back, the lane was noted anew, for no less than was asked of it by then.
  bool has(Lane lane, Epoch epoch, uint64_t demand) const {
    for (const Slot& slot : sets_[index(lane)]) {
      if (slot.lane.load(std::memory_order_acquire) != lane) continue;
      const bool has = slot.epoch.load(std::memory_order_acquire) >= epoch &&
                       slot.met.load(std::memory_order_acquire) >= demand;
      return has && slot.lane.load(std::memory_order_acquire) == lane;
    }
    return false;
  }

  // ---- Under the timeline's lock.

  bool knows(Lane lane) { return find(sets_[index(lane)], lane) != nullptr; }

  // Call after the wait, if there is one.
  void set(Lane lane, Epoch epoch, uint64_t demand) {
    Set& set = sets_[index(lane)];
    Slot* slot = find(set, lane);
    if (slot == nullptr) {
      slot = make_place(set);
      slot->lane.store(lane, std::memory_order_release);
    }
    if (epoch > slot->epoch.load(std::memory_order_relaxed))
      slot->epoch.store(epoch, std::memory_order_release);
    slot->met.store(demand, std::memory_order_release);
  }
  void drop(Lane lane) {
    Slot* const slot = find(sets_[index(lane)], lane);
    if (slot == nullptr) return;
    clear(*slot);
    --count_;
  }
  void drop_all() {
    for (Set& set : sets_) {
      for (Slot& slot : set) clear(slot);
    }
    count_ = 0;
  }
  // Roughly how many lanes had to wait.
  size_t count() const { return count_; }

 private:
  struct Slot {
    std::atomic<Lane> lane{Lane::kNone};
    std::atomic<Epoch> epoch{0};
    std::atomic<uint64_t> met{0};
  };
  using Set = std::array<Slot, 4>;
  static constexpr int kSetBits = 5;

  static void clear(Slot& slot) {
    slot.epoch.store(0, std::memory_order_release);
    slot.met.store(0, std::memory_order_release);
    slot.lane.store(Lane::kNone, std::memory_order_release);
  }
  // Handles differ in few bits; the multiplication spreads them to the top.
  static size_t index(Lane lane) {
    return static_cast<uint64_t>(lane) * 0x9e3779b97f4a7c15 >> (64 - kSetBits);
  }
  static Slot* find(Set& set, Lane lane) {
    for (Slot& slot : set) {
      if (slot.lane.load(std::memory_order_relaxed) == lane) return &slot;
    }
    return nullptr;
  }
  Slot* make_place(Set& set) {
    if (Slot* const free = find(set, Lane::kNone)) {
      ++count_;
      return free;
    }
    Slot* const slot = &set[next_++ % set.size()];
    clear(*slot);
    return slot;
  }

  std::array<Set, size_t{1} << kSetBits> sets_{};
  size_t count_ = 0;
  size_t next_ = 0;  // which slot of a full set is evicted
};

}  // namespace cupool::order
