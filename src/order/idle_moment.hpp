// A moment in which a context has no pending work and nothing is submitted to it: memory that goes back to
// the driver now makes nobody wait, on host or device. Held for one release at a time.
#pragma once

#include "order/submission_gate.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

class IdleMoment {
 public:
  explicit IdleMoment(const Timeline& order)
      : closing_(order.is_idle()), has_come_(closing_.is_closed() && order.is_idle()) {}
  bool has_come() const { return has_come_; }

 private:
  const SubmissionGate::Closing closing_;
  const bool has_come_;
};

}  // namespace cupool::order
