// See round.hpp.
#include "hooks/process/round.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cupool::hooks {

void Handover::set(Turn turn) {
  turn_.store(turn, std::memory_order_release);
  syscall(SYS_futex, &turn_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

Handover::Turn Handover::wait_while(Turn turn) {
  uint32_t now;
  while ((now = turn_.load(std::memory_order_acquire)) == turn)
    syscall(SYS_futex, &turn_, FUTEX_WAIT_PRIVATE, turn, nullptr, nullptr, 0);
  return static_cast<Turn>(now);
}

void Handover::play() {
  set(kDriver);
  wait_while(kDriver);
}

void Handover::end(ThreadEnds how) {
  how_ = how;
  set(kEnd);
}

Round* Handover::wait() { return wait_while(kFiles) == kDriver ? &round_ : nullptr; }

void Handover::played() { set(kFiles); }

}  // namespace cupool::hooks
