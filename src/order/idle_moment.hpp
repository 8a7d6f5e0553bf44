// A moment in which a context has no pending work and nothing is submitted to it: memory that goes back to
// the driver now makes nobody wait, on host or device. Held for one release at a time.
#pragma once

#include <optional>

#include "order/submission_gate.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

class IdleMoment {
 public:
  // `on_own_thread`: the caller is not a thread of the program, so even a single thread may be submitting.
  IdleMoment(const Timeline& order, bool on_own_thread) {
    if (!order.is_idle()) return;
    if (on_own_thread || order.has_several_threads()) {
      closing_.emplace();
      if (!closing_->is_closed()) return;
    }
    has_come_ = order.is_idle();
  }
  bool has_come() const { return has_come_; }

 private:
  std::optional<SubmissionGate::Closing> closing_;
  bool has_come_ = false;
};

}  // namespace cupool::order
