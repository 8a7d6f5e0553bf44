// See growth_history.hpp.
#include "pool/growth_history.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace cupool::pool {

growth::Figures GrowthHistory::figures() const {
  const auto read = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  const RangeBytes& bytes = ranges_.bytes();
  return {.reserved = bytes.reserved(),
          .usable = bytes.usable(),
          .peak_taken = bytes.peak_taken(),
          .spread = read(spread_),
          .spread_once = read(spread_once_),
          .needed_once = read(needed_once_),
          .last_need = read(last_need_),
          .equal_segments = read(equal_segments_),
          .taken = bytes.taken(),
          .apart = bytes.apart(),
          .in_holes = bytes.in_holes(),
          .for_small = bytes.for_small(),
          .most = std::min(tenancy_.device_bytes(), tenancy_.settings().limit),
          .moved = read(moved_),
          .few_moves = read(few_moves_),
          .largest_moved = read(largest_moved_),
          .lanes_in_turns = tenancy_.order().lanes_in_turns(),
          .has_turns = tenancy_.order().turns().now() != 0,
          .is_newly_tainted = read(newly_tainted_),
          .is_cache_limited = tenancy_.max_cached() < tenancy_.device_bytes(),
          .full_at = read(full_at_)};
}

// It has room again once the pool has more than it had then: another process has less.
void GrowthHistory::note_fullness(bool is_full) {
  const uint64_t reserved = ranges_.bytes().reserved();
  const uint64_t before = full_at_.load(std::memory_order_relaxed);
  if (is_full || (before != 0 && reserved > before + before / 8))
    full_at_.store(is_full ? reserved : 0, std::memory_order_relaxed);
}

// Remembers how many segments in a row were taken for blocks of one size.
void GrowthHistory::note_need(uint64_t need) {
  const uint64_t exact = round_up(need, kPageBytes);
  const bool is_equal = last_need_.exchange(exact, std::memory_order_relaxed) == exact;
  equal_segments_.store(is_equal ? equal_segments_.load(std::memory_order_relaxed) + 1 : 1,
                        std::memory_order_relaxed);
}

// Refunds the budget of streams that take turns by the bytes released. It counts at most what is idle: mapped
// chunks go back whatever else is pending, so memory given to those streams may still lie idle, and what does
// not is in use, so it was needed.
void GrowthHistory::note_released(uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t idle = ranges_.bytes().free();
  uint64_t spread = spread_.load(std::memory_order_relaxed);
  while (!spread_.compare_exchange_weak(spread, std::min(spread - std::min(spread, bytes), idle),
                                        std::memory_order_relaxed)) {
  }
}

// See growth::maybe_needed().
void GrowthHistory::note_pause(const growth::Figures& before) {
  const auto raise = [](std::atomic<uint64_t>& to, uint64_t bytes) {
    if (bytes > to.load(std::memory_order_relaxed)) to.store(bytes, std::memory_order_relaxed);
  };
  raise(needed_once_, before.needed());
  raise(spread_once_, before.spread);
}

void GrowthHistory::note_needed(uint64_t bytes) {
  for (std::atomic<uint64_t>* const from : {&spread_, &spread_once_}) {
    uint64_t spread = from->load(std::memory_order_relaxed);
    while (
        !from->compare_exchange_weak(spread, spread - std::min(spread, bytes), std::memory_order_relaxed)) {
    }
  }
}

bool GrowthHistory::should_grow(uint64_t bytes) {
  const growth::Figures now = figures();
  uint64_t moved = now.moved;
  return growth::should_grow(now, bytes) &&
         moved_.compare_exchange_strong(moved, 0, std::memory_order_relaxed);
}

void GrowthHistory::note_moved(size_t chunks, uint64_t bytes) {
  const uint64_t peak = ranges_.bytes().peak_taken();
  if (peak_at_move_.exchange(peak, std::memory_order_relaxed) != peak) forget_moves();
  moved_.fetch_add(chunks, std::memory_order_relaxed);
  if (bytes > largest_moved_.load(std::memory_order_relaxed))
    largest_moved_.store(bytes, std::memory_order_relaxed);
}

void GrowthHistory::forget_moves() {
  moved_.store(0, std::memory_order_relaxed);
  largest_moved_.store(0, std::memory_order_relaxed);
  few_moves_.store(kFewMoves, std::memory_order_relaxed);
}

void GrowthHistory::note_growth_failed() {
  const uint64_t few = few_moves_.load(std::memory_order_relaxed);
  few_moves_.store(std::min(2 * few, uint64_t{1} << 30), std::memory_order_relaxed);
}

void GrowthHistory::reset() {
  added_.store(0, std::memory_order_relaxed);
  gone_.store(0, std::memory_order_relaxed);
  spread_.store(0, std::memory_order_relaxed);
  spread_once_.store(0, std::memory_order_relaxed);
  needed_once_.store(0, std::memory_order_relaxed);
  full_at_.store(0, std::memory_order_relaxed);
  forget_moves();
}

}  // namespace cupool::pool
