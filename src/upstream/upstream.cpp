// See upstream.hpp. Every call of the driver for memory that an allocator keeps is made here.
#include "upstream/upstream.hpp"

namespace cupool::upstream {

using driver::kSuccess;
using driver::Status;
using stats::DeviceCounter;

Status Upstream::allocate(uint64_t bytes, driver::Address* out, bool* is_asked) {
  const auto ask = [&] {
    if (is_asked != nullptr) *is_asked = true;
    return source_.allocate(bytes, out);
  };
  if (!is_counted()) return ask();
  uint64_t took = 0;
  const Status status = take(bytes, ask, &took);
  if (status == kSuccess) stats_.allocated_in(bytes, took);
  return status;
}

void Upstream::note_taken(uint64_t bytes, Status status, uint64_t took_ns) {
  if (status != kSuccess) {
    Limit::refused(device_, bytes);
    stats_.count(DeviceCounter::driver_refusals);
    return;
  }
  Limit::asked(device_);
  stats_.reserve(bytes);
  stats_.count(DeviceCounter::segments_allocated);
  stats_.count(DeviceCounter::driver_allocate_ns, took_ns);
}

// The driver's free waits for all work, so it completes epochs like a wait of the program's.
bool Upstream::release(order::Timeline& order, driver::Address start, uint64_t bytes) {
  const auto free = [&] {
    const order::Epoch epoch = order.begin_wait(order::Lane::kMany);
    const bool is_taken = source_.release_in(order.context(), start) == kSuccess;
    order.end_wait(epoch, is_taken);
    return is_taken;
  };
  if (!is_counted()) {
    const bool is_taken = free();
    if (is_taken) Limit::note_return();
    return is_taken;
  }
  uint64_t took = 0;
  const bool is_taken = give(bytes, free, &took);
  if (is_taken) stats_.released_in(bytes, took);
  return is_taken;
}

bool Upstream::release_done(order::Timeline& order, driver::Address start, uint64_t bytes) {
  const driver::Stream stream = is_counted() ? order.spare_stream() : nullptr;
  if (stream == nullptr) return false;
  uint64_t took = 0;
  const bool is_taken = give(
      bytes, [&] { return source_.release_on(order.context(), stream, start) == kSuccess; }, &took);
  if (is_taken) stats_.released_in(bytes, took);
  return is_taken;
}

void Upstream::note_given(uint64_t bytes, uint64_t took_ns) {
  forget(bytes);
  stats_.count(DeviceCounter::segments_released);
  stats_.count(DeviceCounter::driver_release_ns, took_ns);
}

void Upstream::give_up(driver::Address start, uint64_t bytes) {
  source_.release(start);
  forget(bytes);
}

void Upstream::forget(uint64_t bytes) {
  if (!is_counted()) return;
  Limit::give_back(device_, bytes);
  stats_.release(bytes);
}

uint64_t Upstream::excess(uint64_t bytes) const {
  if (!is_counted()) return 0;
  const uint64_t booked = Limit::booked(device_);
  return bytes > limit_ ? bytes : booked > limit_ - bytes ? booked - (limit_ - bytes) : 0;
}

}  // namespace cupool::upstream
