// See search_memory.hpp.
#include "pool/search_memory.hpp"

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

}  // namespace cupool::pool
