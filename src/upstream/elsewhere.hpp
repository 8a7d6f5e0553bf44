// Memory of one context that waits for work of another: it was freed in the order of a stream there.
#pragma once

#include "order/timeline.hpp"
#include "upstream/in_flight.hpp"

namespace cupool::upstream {

// Whether the other context's work is done up to an epoch. It may end meanwhile, and when it has, it is.
inline bool is_done_elsewhere(InFlight& in_flight, order::Timeline& elsewhere, order::Epoch epoch) {
  if (epoch > elsewhere.done()) {
    const InFlight::Call call(in_flight, elsewhere.context(), InFlight::Kind::kUse);
    if (call.is_open()) elsewhere.expect_completion();
  }
  return epoch <= elsewhere.done();
}

}  // namespace cupool::upstream
