// What a pool remembers of how it grew, for the policy of growth.hpp: how many segments came and went, what
// was taken for the sake of streams, what has moved. Words of their own, written by any thread without a
// lock: a decision may be made on figures that do not quite belong together.
#pragma once

#include <atomic>

#include "pool/growth.hpp"
#include "pool/ranges.hpp"
#include "pool/tenancy.hpp"

namespace cupool::pool {

class GrowthHistory {
 public:
  GrowthHistory(const Tenancy& tenancy, const Ranges& ranges) : tenancy_(tenancy), ranges_(ranges) {}

  growth::Figures figures() const;
  bool may_spread(uint64_t bytes) const { return growth::may_spread(tenancy_.settings(), figures(), bytes); }

  // A segment has come, and for which need; one has gone back.
  void note_added() {
    added_.fetch_add(1, std::memory_order_relaxed);
    newly_tainted_.store(false, std::memory_order_relaxed);
  }
  void note_need(uint64_t need);
  void note_gone() { gone_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t added() const { return added_.load(std::memory_order_relaxed); }
  bool thrashes() const { return growth::thrashes(added(), gone_.load(std::memory_order_relaxed)); }
  void note_tainted() { newly_tainted_.store(true, std::memory_order_relaxed); }
  // The driver has refused: forgets the peak from before the pause.
  void note_refused() { needed_once_.store(0, std::memory_order_relaxed); }

  // A segment has come, or the driver refused one while it had hardly any memory left.
  void note_fullness(bool is_full);

  // Bytes are taken so that streams need not wait for each other; or they were refused.
  void add_spread(uint64_t bytes) { spread_.fetch_add(bytes, std::memory_order_relaxed); }
  void remove_spread(uint64_t bytes) { spread_.fetch_sub(bytes, std::memory_order_relaxed); }
  // So many bytes have gone back.
  void note_released(uint64_t bytes);
  // Idle memory has gone back after a pause; before that these were the figures.
  void note_pause(const growth::Figures& before);
  // So much of what was taken for the sake of streams is in use: it was needed.
  void note_needed(uint64_t bytes);

  // Mapped memory: whether a run of so many bytes gets new memory now. One thread at a time is told so.
  bool should_grow(uint64_t bytes);
  void note_moved(size_t chunks, uint64_t bytes);
  void forget_moves();
  // The device had no new memory to spare: more moves come first, twice as many each time.
  void note_growth_failed();

  // The pool serves another context from now on.
  void reset();

 private:
  static constexpr uint64_t kFewMoves = 32;

  const Tenancy& tenancy_;
  const Ranges& ranges_;
  std::atomic<uint64_t> spread_{0};
  std::atomic<uint64_t> spread_once_{0};
  std::atomic<uint64_t> needed_once_{0};
  std::atomic<uint64_t> added_{0};
  std::atomic<uint64_t> gone_{0};
  std::atomic<uint64_t> last_need_{0};
  std::atomic<uint64_t> equal_segments_{0};
  std::atomic<uint64_t> moved_{0};
  std::atomic<uint64_t> few_moves_{kFewMoves};
  std::atomic<uint64_t> largest_moved_{0};
  std::atomic<uint64_t> peak_at_move_{0};  // the most that was handed out at once, at the last move
  std::atomic<uint64_t> full_at_{0};
  std::atomic<bool> newly_tainted_{false};
};

}  // namespace cupool::pool
