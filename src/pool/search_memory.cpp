// See search_memory.hpp.
#include "pool/search_memory.hpp"

#include "base/clock.hpp"
#include "base/reentry.hpp"

namespace cupool::pool {

// On contention this thread just goes without a guess.
order::LaneName SearchMemory::guess_lane(uint64_t bytes, order::Timeline& order) {
  const order::Turns::Present present = order.turns().present();
  if (!lock_.try_lock()) return present.name;
  const order::LaneName guess = guess_.guess(bytes, present, Reentry::work_mark());
  lock_.unlock();
  if (guess != present.name) order.leave_turn_open();
  return guess;
}

bool SearchMemory::wait_for_growth() const {
  constexpr uint64_t kMomentNs = 20'000'000;
  const uint32_t before = grown_.load(std::memory_order_acquire);
  if (growing_.load(std::memory_order_relaxed) == 0) return false;
  const uint64_t begin = now_ns();
  for (int turn = 0; grown_.load(std::memory_order_acquire) == before; ++turn) {
    if (growing_.load(std::memory_order_relaxed) == 0 || now_ns() - begin > kMomentNs) break;
    Lock::wait_a_little(turn);
  }
  return grown_.load(std::memory_order_acquire) != before;
}

}  // namespace cupool::pool
