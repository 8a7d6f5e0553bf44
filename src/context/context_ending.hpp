// Which contexts are just ending: noted around the driver's calls that end them. Contexts of several devices
// may end at once, one of each device (hooks/calls/contexts.cpp); each has a slot. Static, no lock.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>

#include "driver/types.hpp"

namespace cupool::context {

// While one of these exists, a context may have ended without its allocators knowing yet, so addresses in the
// page map may already have been reused by the driver.
class ContextEnding {
 public:
  // Null: none ends.
  explicit ContextEnding(driver::Context context) {
    while (context != nullptr && !claim(context)) sched_yield();
  }
  ~ContextEnding() {
    if (slot_ != nullptr) slot_->store(nullptr, std::memory_order_release);
  }
  ContextEnding(const ContextEnding&) = delete;
  ContextEnding& operator=(const ContextEnding&) = delete;

  static bool is_under_way() {
    for (const auto& slot : slots_) {
      if (slot.load(std::memory_order_acquire) != nullptr) return true;
    }
    return false;
  }
  static bool is_of(driver::Context context) {
    for (const auto& slot : slots_) {
      if (context != nullptr && slot.load(std::memory_order_acquire) == context) return true;
    }
    return false;
  }
  static void forget_after_fork() {
    for (auto& slot : slots_) slot.store(nullptr, std::memory_order_relaxed);
  }

 private:
  bool claim(driver::Context context) {
    for (auto& slot : slots_) {
      driver::Context none = nullptr;
      if (!slot.compare_exchange_strong(none, context, std::memory_order_acq_rel)) continue;
      slot_ = &slot;
      return true;
    }
    return false;
  }

  static constexpr size_t kMost = 16;
  static inline constinit std::array<std::atomic<driver::Context>, kMost> slots_{};
  std::atomic<driver::Context>* slot_ = nullptr;
};

}  // namespace cupool::context
