// How many bytes of a device are taken from the driver to be cut, or are just being asked for: by all
// contexts together, so that neither two of them nor two threads get past CUPOOL_LIMIT. No lock: one word a
// device.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "stats/device.hpp"

namespace cupool::pool {

class Budget {
 public:
  // Before the driver is asked. False: it would be more than `limit`.
  static bool book(int device, uint64_t bytes, uint64_t limit) {
    std::atomic<uint64_t>& word = taken(device);
    uint64_t now = word.load(std::memory_order_relaxed);
    do {
      if (bytes > limit || now > limit - bytes) return false;
    } while (!word.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }
  static uint64_t booked(int device) { return taken(device).load(std::memory_order_relaxed); }
  // The driver refused, or has the memory again.
  static void give_back(int device, uint64_t bytes) {
    taken(device).fetch_sub(bytes, std::memory_order_relaxed);
  }

 private:
  static std::atomic<uint64_t>& taken(int device) {
    return words_[static_cast<size_t>(std::clamp(device, 0, stats::kMostDevices - 1))];
  }

  static inline constinit std::array<std::atomic<uint64_t>, stats::kMostDevices> words_{};
};

}  // namespace cupool::pool
