// A moment in which a context has no pending work and nothing is submitted to it: memory that goes back to
// the driver now makes nobody wait, on host or device. Held for one release at a time.
#pragma once

#include "base/all_threads.hpp"
#include "order/submission_gate.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

class IdleMoment {
 public:
  // `on_own_thread`: the caller is not a thread of the program, so even a single thread may be submitting.
  // Without a gate, only a program of one thread is trusted not to submit meanwhile.
  IdleMoment(const Timeline& order, bool on_own_thread)
      : needs_gate_(on_own_thread || order.has_several_threads() || AllThreads::can_be_ordered()),
        closing_(needs_gate_ && order.is_idle()),
        has_come_((closing_.is_closed() || !needs_gate_) && order.is_idle()) {}
  bool has_come() const { return has_come_; }

 private:
  const bool needs_gate_;
  const SubmissionGate::Closing closing_;
  const bool has_come_;
};

}  // namespace cupool::order
