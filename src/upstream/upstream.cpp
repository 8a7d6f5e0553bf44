// See upstream.hpp. Every call of the driver for memory that an allocator keeps is made here.
#include "upstream/upstream.hpp"

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "trace/dealings.hpp"

namespace cupool::upstream {

using driver::kSuccess;
using driver::Status;
using stats::DeviceCounter;

Status Upstream::allocate(uint64_t bytes, driver::Address* out, bool* is_asked) {
  const auto ask = [&] {
    if (is_asked != nullptr) *is_asked = true;
    return source_.allocate(bytes, out);
  };
  if (is_counted()) return take(bytes, ask, out);
  const Status status = ask();
  tell_uncounted(status == kSuccess ? "taken from" : "refused by", bytes);
  return status;
}

// Managed memory; what spills is told by its source.
void Upstream::tell_uncounted(const char* what, uint64_t bytes) const {
  if (log::is_verbose() && source_.is_host_visible())
    log::detail("device {}: {} of managed memory {} the driver", device_, print_bytes(bytes), what);
}

void Upstream::note_taken(uint64_t bytes, Status status, uint64_t took_ns, const driver::Address* where) {
  if (status != kSuccess) {
    Limit::refused(device_, charge(bytes));
    stats_.count(DeviceCounter::driver_refusals);
    trace::tell_segment(trace::Dealing::kRefused, device_, 0, bytes, took_ns);
    if (log::is_verbose())
      log::detail("device {}: the driver refused {} (its error {}); {} reserved", device_, print_bytes(bytes),
                  status, print_bytes(Limit::booked(device_)));
    return;
  }
  Limit::asked(device_);
  stats_.reserve(bytes);
  stats_.count(DeviceCounter::segments_allocated);
  stats_.count(DeviceCounter::driver_allocate_ns, took_ns);
  trace::tell_segment(trace::Dealing::kTaken, device_, where != nullptr ? *where : 0, bytes, took_ns);
  if (log::is_verbose())
    log::detail("device {}: took {} from the driver in {:.3f} ms; {} reserved", device_, print_bytes(bytes),
                static_cast<double>(took_ns) * 1e-6, print_bytes(Limit::booked(device_)));
}

// The driver is not asked.
void Upstream::tell_limit(uint64_t bytes) const {
  if (log::is_verbose())
    log::detail("device {}: {} more would exceed CUPOOL_LIMIT, {}; {} reserved", device_, print_bytes(bytes),
                print_bytes(limit_), print_bytes(Limit::booked(device_)));
}

// The driver's free waits for all work, so it completes epochs like a wait of the program's.
bool Upstream::release(order::Timeline& order, driver::Address start, uint64_t bytes) {
  const auto free = [&] {
    const order::Epoch epoch = order.begin_wait(order::Lane::kMany, trace::Ordering::kOwnWaitBegins);
    const bool is_taken = source_.release_in(order.context(), start) == kSuccess;
    order.end_wait(epoch, is_taken);
    return is_taken;
  };
  if (!is_counted()) {
    const bool is_taken = free();
    if (!is_taken) return false;
    Limit::note_return();
    tell_uncounted("given back to", bytes);
    return true;
  }
  return give(bytes, free, start);
}

bool Upstream::release_done(order::Timeline& order, driver::Address start, uint64_t bytes) {
  const driver::Stream stream = is_counted() ? order.spare_stream() : nullptr;
  // (A free in stream order would wait as all work does, and that work may wait for this thread.)
  if (stream == nullptr || order.is_held_up()) return false;
  return give(
      bytes, [&] { return source_.release_on(order.context(), stream, start) == kSuccess; }, start);
}

void Upstream::note_given(uint64_t bytes, uint64_t took_ns, driver::Address where) {
  return_to_account(bytes);
  stats_.count(DeviceCounter::segments_released);
  stats_.count(DeviceCounter::driver_release_ns, took_ns);
  trace::tell_segment(trace::Dealing::kGiven, device_, where, bytes, took_ns);
  if (log::is_verbose())
    log::detail("device {}: gave {} back to the driver in {:.3f} ms; {} reserved", device_,
                print_bytes(bytes), static_cast<double>(took_ns) * 1e-6, print_bytes(Limit::booked(device_)));
}

void Upstream::give_up(driver::Address start, uint64_t bytes) {
  source_.release(start);
  forget(bytes);
}

void Upstream::forget(uint64_t bytes) {
  return_to_account(bytes);
  if (log::is_verbose() && is_counted() && bytes != 0)
    log::detail(
        "device {}: {} are the driver's again, freed with their context or by a call of its own; {} reserved",
        device_, print_bytes(bytes), print_bytes(Limit::booked(device_)));
}

void Upstream::return_to_account(uint64_t bytes) {
  if (!is_counted()) return;
  Limit::give_back(device_, charge(bytes));
  stats_.release(bytes);
}

uint64_t Upstream::excess(uint64_t bytes) const {
  if (!is_counted()) return 0;
  const uint64_t booked = Limit::booked(device_);
  bytes = charge(bytes);
  return bytes > limit_ ? bytes : booked > limit_ - bytes ? booked - (limit_ - bytes) : 0;
}

}  // namespace cupool::upstream
