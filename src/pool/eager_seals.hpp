// Which frees seal at once, whatever else was freed since the last seal: for a time, those of blocks as large
// as one that found no place but in memory whose work no seal covered. A loop that allocates and frees one
// block would else take a segment from the driver in every round, where there is no second place for the
// block: beyond half of the device, and after an export. The time is longer with each such block, so that a
// program pays for few seals, or for few segments. No lock: any thread, each word alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cupool::pool {

class EagerSeals {
 public:
  bool include(uint64_t bytes) const { return bytes >= from(); }
  // A block of so many bytes found no place for want of a seal.
  void note_want(uint64_t bytes) {
    const uint32_t turns = turns_.load(std::memory_order_relaxed);
    left_.store(turns, std::memory_order_relaxed);
    turns_.store(std::min(2 * turns, kMostTurns), std::memory_order_relaxed);
    from_.store(std::min(from(), bytes), std::memory_order_relaxed);
  }
  // A free has sealed. (A want that is noted meanwhile may be lost; the next one is not.)
  void note_seal() {
    if (from() != kNone && left_.fetch_sub(1, std::memory_order_relaxed) <= 1)
      from_.store(kNone, std::memory_order_relaxed);
  }

 private:
  // The size from which on frees seal at once.
  uint64_t from() const { return from_.load(std::memory_order_relaxed); }

  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr uint32_t kFirstTurns = 16;
  static constexpr uint32_t kMostTurns = 1 << 16;

  std::atomic<uint64_t> from_{kNone};
  std::atomic<uint32_t> left_{0};
  std::atomic<uint32_t> turns_{kFirstTurns};
};

}  // namespace cupool::pool
