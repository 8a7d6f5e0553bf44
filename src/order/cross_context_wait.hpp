// Memory of one context that waits for work of another: it was freed in the order of a stream there.
#pragma once

#include "context/in_flight.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

using context::InFlight;

// What such memory waits for: all work of the other context up to an epoch of its timeline.
struct CrossContextWait {
  explicit CrossContextWait(Timeline& of) : timeline(&of), context(of.context()), epoch(of.open()) {}

  // Once the memory waits: makes it known some time later that the work is done.
  void expect(InFlight& in_flight) const {
    const InFlight::Call call(in_flight, context, InFlight::Kind::kUse);
    if (!call.is_open()) return;
    timeline->keep_events();
    timeline->seal_for_completion();
  }

  // Asks the driver if it is not known. A context whose end has begun may still have work, though its
  // timeline has none; when it has ended, that is over.
  bool is_done(InFlight& in_flight) const {
    if (epoch > timeline->done()) {
      const InFlight::Call call(in_flight, context, InFlight::Kind::kUse);
      if (call.is_open() && epoch >= timeline->open()) timeline->seal_for_completion();
      if (call.is_open()) timeline->advance();
    }
    return epoch <= timeline->done() && !in_flight.is_off(context);
  }

  Timeline* timeline;
  driver::Context context;
  Epoch epoch;
};

}  // namespace cupool::order
