// See idle_memory.hpp.
#include "memory/idle_memory.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "config/options.hpp"
#include "trace/dealings.hpp"

namespace cupool::memory {

using allocator::Effort;

namespace {
// How far the answer to "how much is free" may be off because of idle managed memory.
constexpr uint64_t kIdleManaged = 64 << 20;
}  // namespace

uint64_t IdleMemory::release_everything(int device, Effort effort, driver::Context asking) {
  const trace::Because because(trace::Why::kShortage);
  uint64_t released = 0;
  allocators_.for_each([&](Allocator& one) { released += one.release_everything(device, effort, asking); });
  return released;
}

uint64_t IdleMemory::releasable_bytes(int device) {
  uint64_t bytes = 0;
  allocators_.for_each([&](Allocator& one) { bytes += one.releasable_bytes(device); });
  return bytes;
}

uint64_t IdleMemory::trim(uint64_t keep) {
  const trace::Because because(trace::Why::kTrim);
  uint64_t released = 0;
  allocators_.for_each([&](Allocator& one) { released += one.trim(keep); });
  return released;
}

uint64_t IdleMemory::release(const allocator::Idle& which) {
  uint64_t released = 0;
  allocators_.for_each([&](Allocator& one) {
    if (released < which.enough) released += one.release_idle(which);
  });
  return released;
}

// At most a quarter of the period late, and rare enough to cost nothing; a little at a time, because the
// program's wait takes that much longer.
void IdleMemory::decay() {
  constexpr uint64_t kLittle = 1 << 30;
  const uint64_t period = config::options().decay_ms;
  const uint64_t now = now_ns() / 1'000'000;
  uint64_t last = decayed_at_.load(std::memory_order_relaxed);
  if (now - last < period / 4 || !decayed_at_.compare_exchange_strong(last, now)) return;
  const trace::Because because(trace::Why::kDecay);
  release({.for_ms = period, .enough = kLittle});
}

void IdleMemory::decay_quiet(bool (*goes_on)()) {
  const trace::Because because(trace::Why::kDecay);
  order_.for_each([](order::Timeline& timeline) { timeline.look_if_quiet(); });
  release(
      {.for_ms = config::options().decay_ms, .only_quiet = true, .on_own_thread = true, .goes_on = goes_on});
}

uint64_t IdleMemory::release_for_others(int device, uint64_t bytes, bool (*goes_on)()) {
  const trace::Because because(trace::Why::kNeighbour);
  order_.for_each([](order::Timeline& timeline) {
    if (!timeline.is_idle()) timeline.expect_completion();
  });
  return release({.enough = bytes, .device = device, .on_own_thread = true, .goes_on = goes_on});
}

uint64_t IdleMemory::largest_free(int device, bool wait) {
  uint64_t largest = 0;
  allocators_.for_each([&](Allocator& one) { largest = std::max(largest, one.largest_free(device, wait)); });
  return largest;
}

// Only when no work is pending: the driver's free would wait for it, and a query must not.
void IdleMemory::release_managed(driver::Context context) {
  order::Timeline* const order =
      context == nullptr || !allocators_.has_dedicated() ? nullptr : order_.find(context);
  if (order == nullptr) return;
  order->advance();
  if (!order->is_idle()) return;
  allocators_.for_each_dedicated([&](DedicatedBlocks& blocks) {
    if (blocks.is_host_visible()) blocks.release_idle_of(context, kIdleManaged);
  });
}

}  // namespace cupool::memory
