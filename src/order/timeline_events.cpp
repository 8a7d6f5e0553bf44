// What a timeline makes of the driver ahead of its use: events for seals, and a stream that no work goes to.
// Neither is made with the timeline's lock held, because the driver makes none while a launch stands in a
// full queue; the lock is taken to look and to store.
#include "order/timeline.hpp"

namespace cupool::order {

using driver::kSuccess;

driver::Stream Timeline::spare_stream() {
  Guard hold(lock_);
  return spare_;
}

// Made when memory is short for the first time: a device has few queues, and every stream takes a place in
// one. A driver that cannot is not asked again; one that has no memory for a stream is. Without the lock: the
// driver may let the caller wait for a launch of another thread's, which may wait for a third. Of two streams
// made at once one stays unused.
bool Timeline::make_spare_stream() {
  const driver::Context here = context();
  {
    Guard hold(lock_);
    wants_spare_.store(false, std::memory_order_relaxed);
    if (has_no_spare_ || spare_ != nullptr || here == nullptr) return spare_ != nullptr;
  }
  driver::Stream made = nullptr;
  const driver::Status status = driver_.create_stream(here, &made);
  Guard hold(lock_);
  if (context() != here) return false;
  if (status == kSuccess && spare_ == nullptr) spare_ = made;
  has_no_spare_ = status != kSuccess && status != driver::kOutOfMemory;
  return spare_ != nullptr;
}

// Not made here: the driver may let this thread wait for a launch or a free that stands there, and those for
// what this thread, or one that waits for it, submits elsewhere.
bool Timeline::ask_for_spare_stream() {
  const bool is_there = spare_stream() != nullptr;
  if (!is_there) wants_spare_.store(true, std::memory_order_relaxed);
  return is_there;
}

// Without the lock, like the spare stream: the driver makes no event while a launch stands in a full queue.
// In a call that asks for memory, or in a free, which would wait for that launch under the driver.
void Timeline::keep_events() {
  if (wants_spare_.load(std::memory_order_relaxed)) make_spare_stream();
  constexpr int kAtATime = 8;
  const driver::Context here = context();
  uint64_t life = 0;
  {
    Guard hold(lock_);
    if (seals_.has_event() || failed_ || here == nullptr || !driver_.has_context_events()) return;
    life = life_.load(std::memory_order_relaxed);
  }
  driver::Event made = nullptr;
  for (int i = 0; i < kAtATime && driver_.create_event(here, &made) == kSuccess; ++i) {
    Guard hold(lock_);
    if (context() == here && life_.load(std::memory_order_relaxed) == life) seals_.give_event(made);
  }
}

}  // namespace cupool::order
