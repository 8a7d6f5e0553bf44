// The account of CUPOOL_LIMIT: the bytes of each device that all allocators and contexts together have taken
// from the driver or are asking for. Booked before the driver is asked, so that concurrent requests cannot
// exceed the limit. No lock: two atomic words per device, and a count of what came back.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "stats/device.hpp"

namespace cupool::upstream {

class Limit {
 public:
  // Before the driver is asked; asked() or refused() must follow. False: it would exceed `limit`.
  static bool book(int device, uint64_t bytes, uint64_t limit) {
    std::atomic<uint64_t>& taken = taken_[index(device)];
    uint64_t now = taken.load(std::memory_order_relaxed);
    asking_[index(device)].fetch_add(1, std::memory_order_relaxed);
    do {
      if (bytes > limit || now > limit - bytes) {
        asked(device);
        return false;
      }
    } while (!taken.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }
  static void asked(int device) { asking_[index(device)].fetch_sub(1, std::memory_order_release); }
  static void refused(int device, uint64_t bytes) {
    taken_[index(device)].fetch_sub(bytes, std::memory_order_relaxed);
    refusals_.fetch_add(1, std::memory_order_release);
    asked(device);
  }
  // How often a booked request was refused by the driver: the bookings of others may fit then.
  static uint64_t refusals() { return refusals_.load(std::memory_order_acquire); }
  // The driver has the memory again.
  static void give_back(int device, uint64_t bytes) {
    taken_[index(device)].fetch_sub(bytes, std::memory_order_relaxed);
    note_return();
  }

  // How often the driver got memory back, on any device and managed memory, too.
  static void note_return() { returns_.fetch_add(1, std::memory_order_release); }
  static uint64_t returns() { return returns_.load(std::memory_order_acquire); }
  static uint64_t booked(int device) { return taken_[index(device)].load(std::memory_order_relaxed); }
  // Whether a booked request is still with the driver, which may refuse it.
  static bool is_asking(int device) { return asking_[index(device)].load(std::memory_order_acquire) != 0; }
  // In a fork child: it holds nothing.
  static void forget_after_fork() {
    for (auto& word : taken_) word.store(0, std::memory_order_relaxed);
    for (auto& word : asking_) word.store(0, std::memory_order_relaxed);
  }

 private:
  using Words = std::array<std::atomic<uint64_t>, stats::kMostDevices>;
  static size_t index(int device) {
    return static_cast<size_t>(std::clamp(device, 0, stats::kMostDevices - 1));
  }

  static inline constinit Words taken_{};
  static inline constinit Words asking_{};
  static inline constinit std::atomic<uint64_t> returns_{0};
  static inline constinit std::atomic<uint64_t> refusals_{0};
};

}  // namespace cupool::upstream
