// See upstream.hpp. Every call of the driver for memory that an allocator keeps is made here.
#include "upstream/upstream.hpp"

#include "base/clock.hpp"

namespace cupool::upstream {

using driver::kOutOfMemory;
using driver::kSuccess;
using driver::Status;
using stats::DeviceCounter;

Status Upstream::allocate(uint64_t bytes, driver::Address* out) {
  if (!is_counted()) return driver_.allocate(bytes, out);
  if (!Limit::book(device_, bytes, limit_)) return kOutOfMemory;
  const uint64_t before = now_ns();
  const Status status = driver_.allocate(bytes, out);
  const uint64_t took = now_ns() - before;
  if (status != kSuccess) {
    Limit::refused(device_, bytes);
    stats_.count(DeviceCounter::driver_refusals);
    return status;
  }
  Limit::asked(device_);
  stats_.reserve(bytes);
  stats_.count(DeviceCounter::segments_allocated);
  stats_.count(DeviceCounter::driver_allocate_ns, took);
  stats_.allocated_in(bytes, took);
  return kSuccess;
}

// The driver's free waits for all work, so it completes epochs like a wait of the program's.
bool Upstream::release(order::Timeline& order, driver::Address start, uint64_t bytes) {
  const order::Epoch epoch = order.begin_wait(order::Lane::kMany);
  const uint64_t before = now_ns();
  const Status status = driver_.release_in(order.context(), start);
  order.end_wait(epoch, status == kSuccess);
  if (status != kSuccess) return false;
  forget(bytes);
  if (is_counted()) {
    const uint64_t took = now_ns() - before;
    stats_.count(DeviceCounter::segments_released);
    stats_.count(DeviceCounter::driver_release_ns, took);
    stats_.released_in(bytes, took);
  }
  return true;
}

void Upstream::give_up(driver::Address start, uint64_t bytes) {
  driver_.release(start);
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
