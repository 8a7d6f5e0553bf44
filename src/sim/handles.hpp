// Handle tables. A handle is a made-up pointer value; the slot freed last is given out first, so a destroyed
// stream's or context's handle comes back at once: real drivers may do that, and callers must survive it.
// Not locked: every table is guarded by the state mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cupool::sim {

template <typename T, typename Handle>
class HandleTable {
 public:
  explicit HandleTable(std::uintptr_t base) : base_(base) {}

  Handle insert(std::shared_ptr<T> object) {
    std::size_t slot = slots_.size();
    if (free_.empty()) {
      slots_.push_back(std::move(object));
    } else {
      slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(object);
    }
    return reinterpret_cast<Handle>(base_ + (slot + 1) * kStride);
  }

  std::shared_ptr<T> find(Handle handle) const {
    const std::size_t slot = slot_of(handle);
    return slot < slots_.size() ? slots_[slot] : nullptr;
  }

  // Puts another object behind a handle that stays valid (a primary context started anew).
  void replace(Handle handle, std::shared_ptr<T> object) { slots_[slot_of(handle)] = std::move(object); }

  std::shared_ptr<T> remove(Handle handle) {
    const std::size_t slot = slot_of(handle);
    if (slot >= slots_.size() || slots_[slot] == nullptr) return nullptr;
    free_.push_back(slot);
    return std::exchange(slots_[slot], nullptr);
  }

  template <typename F>
  void each(F&& visit) const {
    for (const auto& object : slots_) {
      if (object != nullptr) visit(object);
    }
  }

 private:
  static constexpr std::uintptr_t kStride = 0x100;

  std::size_t slot_of(Handle handle) const {
    const std::uintptr_t value = reinterpret_cast<std::uintptr_t>(handle);
    if (value <= base_ || (value - base_) % kStride != 0) return SIZE_MAX;
    return (value - base_) / kStride - 1;
  }

  std::uintptr_t base_;
  std::vector<std::shared_ptr<T>> slots_;
  std::vector<std::size_t> free_;
};

}  // namespace cupool::sim
