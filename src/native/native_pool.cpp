// See native_pool.hpp. Two threads may record the same event one after the other: each then waits for the
// later record, which covers its own, because both records are of one stream or of one context.
#include "native/native_pool.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "base/preserve_errno.hpp"
#include "report/shortage.hpp"
#include "stats/service.hpp"
#include "trace/dealings.hpp"
#include "upstream/limit.hpp"
#include "upstream/retry.hpp"

namespace cupool::native {

using driver::kInvalidValue;
using driver::kNotSupported;
using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;
using upstream::Limit;

ContextPool* NativePool::open(driver::Context context) {
  if (ContextPool* const pool = ledger_.find(context)) return pool;
  static constinit log::Once once;
  if (!driver_.has_context_events() || !native_.has_native_pools()) {
    if (once.first())
      log::line("this driver has no stream-ordered pools with context events; the caching pool serves");
    return nullptr;
  }
  ContextPool* const made = ContextPool::make(driver_, native_, context);
  if (made == nullptr) {
    if (once.first()) log::line("the driver would not make a stream-ordered pool; the caching pool serves");
    return nullptr;
  }
  order_.join(context);
  if (ContextPool* const earlier = ledger_.enter(made)) {
    ContextPool::discard(native_, made);
    return earlier;
  }
  free_orphans(*made);
  return made;
}

Status NativePool::allocate_visible(ContextPool& pool, uint64_t bytes, Address* out) {
  Status status = native_.allocate_on(pool.pool, pool.allocates, bytes, out);
  if (status != kSuccess) return status;
  status = native_.record_on(pool.allocates, pool.allocated);
  if (status == kSuccess && order_.gate().enter(pool.context)) {
    status = driver_.order_after(pool.context, pool.allocated);
    order_.gate().leave(pool.context);
  } else {
    status = driver::kUnknown;
  }
  // Without the event the host waits instead.
  return status == kSuccess ? kSuccess : native_.synchronize_stream(pool.allocates);
}

// Freed blocks, also those that other threads free meanwhile, may still be waiting for their work: retry.
Status NativePool::allocate_from_driver(ContextPool& pool, uint64_t bytes, Address* out) {
  const Status status = allocate_visible(pool, bytes, out);
  if (status != kOutOfMemory) return status;
  stats::device(pool.device).count(DeviceCounter::out_of_memory_retries);
  free_deferred();
  uint64_t seen = ~uint64_t{0};
  return upstream::ask_again(
      [&] {
        const uint64_t frees = pool.frees_made.load(std::memory_order_acquire);
        if (frees == seen) return false;
        seen = frees;
        native_.synchronize_stream(pool.frees);
        native_.trim(pool.pool, 0);
        return true;
      },
      [&] { return allocate_visible(pool, bytes, out); });
}

Status NativePool::allocate(driver::Context context, uint64_t bytes, Address* out) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  if (!call.is_open() || host::is_short()) return allocator::kDeclined;
  ContextPool* const pool = open(context);
  if (pool == nullptr) return kNotSupported;
  // During a capture the plain driver call answers.
  if (order_.is_capturing()) return device_memory_.allocate(bytes, out);
  Status status = kOutOfMemory;
  // Booked first, as for the limit: two threads together must not pass the maximum.
  const uint64_t live = pool->live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if ((pool->max_bytes == 0 || live <= pool->max_bytes) && Limit::book(pool->device, bytes, pool->limit)) {
    status = allocate_from_driver(*pool, bytes, out);
    status == kSuccess ? Limit::asked(pool->device) : Limit::refused(pool->device, bytes);
  }
  if (status != kSuccess) {
    pool->live.fetch_sub(bytes, std::memory_order_relaxed);
    log::detail("device {}: the native pool, or a limit on it, refused {} (error {})", pool->device,
                print_bytes(bytes), status);
    return status;
  }
  stats::device(pool->device).count(DeviceCounter::native_allocations);
  stats::last_service = {stats::Service::How::kDriver, stats::Service::By::kNative};
  ledger_.enter_block(*pool, *out, bytes);
  return kSuccess;
}

void NativePool::note_failure(driver::Context context, uint64_t bytes) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  ContextPool* const found = call.is_open() ? ledger_.find(context) : nullptr;
  if (found == nullptr) return;
  const ContextPool& pool = *found;
  stats::device(pool.device).count(DeviceCounter::out_of_memory);
  trace::tell_out_of_memory(pool.device, bytes);
  report::Shortage shortage;
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess) return;
  if (bytes > total) stats::device(pool.device).count(DeviceCounter::too_large);
  if (bytes > total || !report::shortage_is_due()) return;
  driver::NativeUsage usage;
  native_.usage(pool.pool, &usage);
  shortage.device = pool.device;
  shortage.asked = shortage.rounded = bytes;
  shortage.source = report::Shortage::Source::kNative;
  shortage.device_free = free;
  shortage.device_total = total;
  shortage.limit = pool.limit;
  shortage.limited = Limit::booked(pool.device);
  const uint64_t live = pool.live.load(std::memory_order_relaxed);
  if (pool.max_bytes != 0 && live + bytes > pool.max_bytes) {
    shortage.limit = pool.max_bytes;
    shortage.limit_name = "CUPOOL_NATIVE_MAX";
    shortage.limited = live;
  }
  shortage.reserved = usage.reserved;
  shortage.live = usage.used;
  report::write_shortage(shortage);
}

void NativePool::free_ordered(ContextPool& pool, Address address) {
  const bool ordered = driver_.record(pool.context, pool.freed) == kSuccess &&
                       driver_.wait_on(pool.frees, pool.freed) == kSuccess &&
                       native_.free_on(pool.frees, address) == kSuccess;
  // The driver's plain free accepts such memory too, but waits.
  if (!ordered) device_memory_.release_in(pool.context, address);
  pool.frees_made.fetch_add(1, std::memory_order_release);
}

// A context event would break a capture: so no capture may begin in the context meanwhile, and during one the
// free is deferred. It is also deferred in a context that is ending, which sets its blocks aside, or has
// failed.
void NativePool::free_or_defer(ContextPool& pool, Address address, bool is_open) {
  if (is_open && order_.gate().enter(pool.context)) {
    free_ordered(pool, address);
    order_.gate().leave(pool.context);
    return;
  }
  ledger_.defer(pool, address);
}

void NativePool::free_deferred() {
  if (!ledger_.has_deferred()) return;
  for_each_pool([&](ContextPool& pool, bool is_open) {
    if (!is_open || !order_.gate().enter(pool.context)) return;
    for (const Address address : ledger_.take_deferred(pool)) free_ordered(pool, address);
    order_.gate().leave(pool.context);
  });
}

Freed NativePool::free(Address address, Waits waits) {
  free_deferred();
  driver::Context context = nullptr;
  if (ledger_.pool_of(address, &context) == nullptr) return Freed::kNotOurs;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  ContextPool* const pool = ledger_.take_out(address, &context);
  if (pool == nullptr) return Freed::kNotOurs;
  free_or_defer(*pool, address, call.is_open());
  order::Timeline* const order = pool->free_waits && call.is_open() ? order_.of(context) : nullptr;
  if (order != nullptr && waits == Waits::kIfAsked) order->wait_for_all();
  return Freed::kDone;
}

bool NativePool::free_on(Address address, driver::Stream stream) {
  driver::Context context = nullptr;
  ContextPool* const pool = ledger_.take_out(address, &context);
  if (pool == nullptr) return false;
  if (native_.free_on(stream, address) == kSuccess) return true;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  free_or_defer(*pool, address, call.is_open());
  return true;
}

template <typename F>
void NativePool::for_each_pool(F&& f) {
  for (ContextPool* const pool : ledger_.pools()) {
    const InFlight::Call call(in_flight_, pool->context, InFlight::Kind::kRelease, pool->device);
    // It may have ended before the call began; the handle may be another context's by now.
    const bool is_open = call.is_open() && ledger_.find(pool->context) == pool;
    f(*pool, is_open);
  }
}

// What the frees of another context follow may itself wait for the thread that asks: there the wait is brief.
void NativePool::wait_for_frees(ContextPool& pool, driver::Context asking) {
  if (asking == nullptr || asking == pool.context) {
    native_.synchronize_stream(pool.frees);
    return;
  }
  // One thread at a time: another one's record of the event would be waited for without end.
  if (pool.is_awaited.exchange(true, std::memory_order_acquire)) return;
  const PreserveErrno preserve;
  const uint64_t before = now_ns();
  // What was waited for in vain before comes before all that was freed since.
  const bool is_in_vain = pool.was_in_vain && driver_.query(pool.drained) == driver::kNotReady;
  Status status = is_in_vain ? kOutOfMemory : native_.record_on(pool.frees, pool.drained);
  if (status == kSuccess) status = driver_.query(pool.drained);
  while (status == driver::kNotReady && !order_.is_capturing() &&
         now_ns() - before < allocator::kMostForOtherContexts) {
    sleep_for(20'000);
    status = driver_.query(pool.drained);
  }
  if (status == kSuccess) native_.synchronize_event(pool.drained);
  pool.was_in_vain = is_in_vain || status == driver::kNotReady;
  pool.is_awaited.store(false, std::memory_order_release);
}

uint64_t NativePool::trim(uint64_t keep, int device, driver::Context asking) {
  if (order_.is_capturing()) return 0;
  if (!order::CaptureGate::is_relaxed()) free_deferred();
  uint64_t released = 0;
  for_each_pool([&](ContextPool& pool, bool is_open) {
    if (!is_open || (device != allocator::kEveryDevice && device != pool.device)) return;
    driver::NativeUsage before;
    driver::NativeUsage after;
    native_.usage(pool.pool, &before);
    wait_for_frees(pool, asking);
    native_.trim(pool.pool, keep);
    native_.usage(pool.pool, &after);
    released += before.reserved - std::min(before.reserved, after.reserved);
  });
  return released;
}

uint64_t NativePool::most_releasable(int device, uint64_t) {
  uint64_t bytes = 0;
  for_each_pool([&](ContextPool& pool, bool is_open) {
    if (!is_open || (device != allocator::kEveryDevice && device != pool.device)) return;
    driver::NativeUsage usage;
    native_.usage(pool.pool, &usage);
    bytes += usage.reserved;
  });
  return bytes;
}

// Unlike trim(), does not wait for frees that their stream has yet to reach: a later call finds that memory.
uint64_t NativePool::release_idle(const allocator::Idle& which) {
  if (order_.is_capturing()) return 0;
  const uint64_t now = now_ns() / 1'000'000;
  uint64_t released = 0;
  for_each_pool([&](ContextPool& pool, bool is_open) {
    if (!is_open || (which.device != allocator::kEveryDevice && which.device != pool.device)) return;
    if (!which.goes_on()) return;
    const uint64_t frees = pool.frees_made.load(std::memory_order_relaxed);
    if (pool.frees_seen.exchange(frees, std::memory_order_relaxed) != frees)
      pool.same_since_ms.store(now, std::memory_order_relaxed);
    if (now - pool.same_since_ms.load(std::memory_order_relaxed) < which.for_ms) return;
    driver::NativeUsage before;
    driver::NativeUsage after;
    native_.usage(pool.pool, &before);
    if (before.reserved > before.used) native_.trim(pool.pool, 0);
    native_.usage(pool.pool, &after);
    released += before.reserved - std::min(before.reserved, after.reserved);
  });
  return released;
}

driver::NativeUsage NativePool::usage(int device) {
  driver::NativeUsage sum;
  for_each_pool([&](ContextPool& pool, bool is_open) {
    if (pool.device != device) return;
    driver::NativeUsage answer;
    const bool answered = is_open && native_.usage(pool.pool, &answer) == kSuccess;
    const driver::NativeUsage one = ledger_.usage(pool, answered ? &answer : nullptr);
    sum.used += one.used;
    sum.peak_used += one.peak_used;
    sum.reserved += one.reserved;
    sum.peak_reserved += one.peak_reserved;
  });
  ledger_.add_past_peaks(device, &sum);
  return sum;
}

void NativePool::reset_peaks() {
  for_each_pool([&](ContextPool& pool, bool is_open) {
    if (is_open) native_.reset_peaks(pool.pool);
  });
  ledger_.forget_past_peaks();
}

Status NativePool::export_pool(driver::Context context, int* descriptor) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  ContextPool* const pool = call.is_open() ? open(context) : nullptr;
  return pool == nullptr ? kNotSupported : native_.export_pool(pool->pool, descriptor);
}

Status NativePool::import_pool(int descriptor, driver::MemoryPool* out) {
  return native_.import_pool(descriptor, out);
}

Status NativePool::export_pointer(Address address, void* data) {
  const ContextPool* const pool = ledger_.pool_of(address);
  if (pool == nullptr) return kInvalidValue;
  // Work of another process is not ordered by our context's events.
  const Status status = native_.synchronize_stream(pool->allocates);
  return status != kSuccess ? status : native_.export_pointer(address, data);
}

Status NativePool::import_pointer(driver::MemoryPool pool, const void* data, Address* out) {
  return native_.import_pointer(pool, data, out);
}

// ---- The end of a context: its memory is set aside before the driver acts, and freed when it has.

void NativePool::begin_end(driver::Context context, uint64_t ending) {
  if (const ContextPool* const pool = ledger_.begin_end(context, ending)) keep_peaks(*pool);
}

void NativePool::keep_peaks(const ContextPool& pool) {
  driver::NativeUsage last;
  ledger_.keep_peaks(pool, native_.usage(pool.pool, &last) == kSuccess ? &last : nullptr);
}

void NativePool::ended(uint64_t ending, bool gone) {
  bool is_empty = false;
  ContextPool* const pool = ledger_.end(ending, gone, &is_empty);
  if (pool == nullptr) return;
  if (!gone) order_.join(pool->context);
  if (is_empty) retire(*pool);
}

void NativePool::retire(const ContextPool& pool) {
  keep_peaks(pool);
  native_.destroy_pool(pool.pool);
}

// The memory belongs to the device and outlives the context. Only once the context is gone is all its work
// certainly done and the memory unused.
void NativePool::free_orphans(ContextPool& pool) {
  for (const Orphans& one : ledger_.take_orphans(pool.device)) {
    // If the driver took the block back with its context, the address may have been reused.
    const auto free = [&](Address address) {
      if (native_.pool_of(address) == one.pool->pool) native_.free_on(pool.frees, address);
    };
    for (const auto& [address, bytes] : one.blocks) free(address);
    for (const Address address : one.deferred) free(address);
    retire(*one.pool);
  }
}

}  // namespace cupool::native
