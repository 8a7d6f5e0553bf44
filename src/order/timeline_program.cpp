// What the program itself tells a timeline: its own waits prove that work is done, and the handle of a stream
// that ends comes back for another. Under the timeline's lock, as in timeline.cpp.
#include "order/timeline.hpp"
#include "trace/dealings.hpp"

namespace cupool::order {

Epoch Timeline::begin_wait(Lane lane, trace::Ordering told_as, Asks asks) {
  Guard hold(lock_);
  if (asks == Asks::kWait) forget_waited_locked(lane);
  if (gate_.is_capturing() || (lane != Lane::kMany && in_use_locked() != lane)) return 0;
  const Epoch epoch = open_next_locked();
  refresh_locked();
  trace::tell_order(told_as, lane == Lane::kMany ? 0 : static_cast<uint64_t>(lane), epoch, context());
  return epoch;
}

// A failed wait proves nothing. Its lanes pass to a seal made meanwhile, which covers their work, or else
// back to the noted lanes.
void Timeline::end_wait(Epoch epoch, bool succeeded) {
  if (epoch == 0) return;
  Guard hold(lock_);
  if (!kNumberFirst) open_.store(epoch + 1, std::memory_order_release);
  trace::tell_order(succeeded ? trace::Ordering::kWaitEnds : trace::Ordering::kWaitFailed, 0, epoch,
                    context());
  if (succeeded) {
    complete_locked(epoch);
  } else {
    add_noted_locked(seals_.abandon(epoch));
  }
}

void Timeline::destroy_stream(Lane lane) {
  Guard hold(lock_);
  trace::tell_order(trace::Ordering::kStreamEnds, static_cast<uint64_t>(lane), 0, context());
  if (kDropWaited) waited_.drop(lane);
  quiet_.store(Lane::kNone, std::memory_order_release);
  turns_.destroy(lane);
  if (!kRename) return;
  seals_.rename(lane);
  if (noted_.load(std::memory_order_relaxed) == lane) add_noted_locked(Lane::kMany);
  refresh_locked();
}

}  // namespace cupool::order
