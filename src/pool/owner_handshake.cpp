// See owner_handshake.hpp: where one side waits for the other.
#include "pool/owner_handshake.hpp"

#include <sched.h>

namespace cupool::pool {

void OwnerHandshake::stop() {
  begin_stop();
  end_stop(AsymmetricFence::order_all_threads());
  AsymmetricFence::order_exits();
}

void OwnerHandshake::end_stop(bool is_ordered) {
  fence_.end_close(is_ordered);
  while (busy_.load(std::memory_order_acquire)) sched_yield();
  AsymmetricFence::note_exit_seen(busy_);
}

void OwnerHandshake::enter_slowly() {
  while (!fence_.enter_with_fence(busy_)) {
    while (fence_.is_closed()) sched_yield();
  }
}

}  // namespace cupool::pool
