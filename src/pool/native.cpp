// See native.hpp. Two threads may record the same event one after the other: each then waits for the later
// record, which covers its own, because both records are of one stream or of one context.
#include "pool/native.hpp"

#include <algorithm>
#include <new>

#include "base/log.hpp"
#include "config/options.hpp"
#include "report/shortage.hpp"

namespace cupool::pool {

using driver::kInvalidValue;
using driver::kNotSupported;
using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;

namespace {

driver::NativeSettings settings_for(uint64_t device_bytes) {
  const config::Options& options = config::options();
  driver::NativeSettings settings;
  const uint64_t most = options.native_max.of(device_bytes);
  settings.max_bytes = most == kUnlimited ? 0 : most;
  settings.keep = options.native_keep.of(device_bytes);
  settings.follow_events = options.native_follow_events;
  settings.opportunistic = options.native_opportunistic;
  settings.internal_dependencies = options.native_internal;
  settings.shareable = options.native_handle == config::NativeHandle::kFd;
  return settings;
}

// What the driver made of the options.
void tell_settings(driver::NativeDriver& native, driver::MemoryPool pool, int device,
                   driver::NativeSettings settings) {
  if (native.read_settings(pool, &settings) != kSuccess) return;
  const auto word = [](bool on) { return on ? "yes" : "no"; };
  log::detail(
      "native pool of device {}: keeps {}, follows events: {}, opportunistic: {}, internal dependencies: {}, "
      "shareable: {}",
      device, print_size({settings.keep, false}), word(settings.follow_events), word(settings.opportunistic),
      word(settings.internal_dependencies), word(settings.shareable));
}

}  // namespace

Native::Source* Native::find_source(driver::Context context) const {
  for (Source* source : sources_) {
    if (source->context == context) return source;
  }
  return nullptr;
}

Native::Source* Native::source_of(driver::Context context) {
  Guard hold(lock_);
  return find_source(context);
}

bool Native::fill(Source* source) {
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess || driver_.device(&source->device) != kSuccess) return false;
  const driver::NativeSettings settings = settings_for(total);
  source->max_bytes = settings.max_bytes;
  if (native_.create_pool(source->device, settings, &source->pool) != kSuccess) return false;
  tell_settings(native_, source->pool, source->device, settings);
  return native_.create_stream(&source->allocates) == kSuccess &&
         native_.create_stream(&source->frees) == kSuccess &&
         driver_.create_event(source->context, &source->allocated) == kSuccess &&
         driver_.create_event(source->context, &source->freed) == kSuccess;
}

Native::Source* Native::open(driver::Context context) {
  if (Source* source = source_of(context)) return source;
  static constinit log::Once once;
  if (!driver_.has_context_events() || !native_.has_native_pools()) {
    if (once.first())
      log::line("this driver has no stream-ordered pools with context events; the caching pool serves");
    return nullptr;
  }
  auto* made = new (std::nothrow) Source;
  if (made == nullptr) return nullptr;
  made->context = context;
  if (!fill(made)) {
    if (once.first()) log::line("the driver would not make a stream-ordered pool; the caching pool serves");
    if (made->pool != nullptr) native_.destroy_pool(made->pool);
    delete made;
    return nullptr;
  }
  order_.join(context);
  Source* earlier = nullptr;
  {
    Guard hold(lock_);
    earlier = find_source(context);
    if (earlier == nullptr) {
      stats::Device& device = stats::device(made->device);
      made->holdings = new (std::nothrow) stats::Holdings(device);
      if (made->holdings != nullptr) device.enlist(*made->holdings);
      sources_.push_back(made);
    }
  }
  if (earlier != nullptr) {
    // Another thread was first; streams and events end with the context.
    native_.destroy_pool(made->pool);
    delete made;
    return earlier;
  }
  free_orphans(*made);
  return made;
}

Status Native::allocate_visible(Source& source, uint64_t bytes, Address* out) {
  Status status = native_.allocate_on(source.pool, source.allocates, bytes, out);
  if (status != kSuccess) return status;
  status = native_.record_on(source.allocates, source.allocated);
  if (status == kSuccess) status = driver_.order_after(source.context, source.allocated);
  // Without the event the host makes sure of it.
  return status == kSuccess ? kSuccess : native_.synchronize_stream(source.allocates);
}

// What was freed may still wait for its work, and what other threads free meanwhile, too.
Status Native::allocate_after_frees(Source& source, uint64_t bytes, Address* out) {
  constexpr int kMostTries = 16;
  Status status = kOutOfMemory;
  for (int i = 0; i < kMostTries && status == kOutOfMemory; ++i) {
    const uint64_t frees = source.frees_made.load(std::memory_order_acquire);
    native_.synchronize_stream(source.frees);
    native_.trim(source.pool, 0);
    status = allocate_visible(source, bytes, out);
    if (frees == source.frees_made.load(std::memory_order_acquire)) break;
  }
  return status;
}

Status Native::allocate(driver::Context context, uint64_t bytes, Address* out) {
  Source* const source = open(context);
  if (source == nullptr) return kNotSupported;
  // During a capture the driver answers as it always does.
  if (!order_.gate().enter()) return driver_.allocate(bytes, out);
  stats::Device& device = stats::device(source->device);
  Status status = kOutOfMemory;
  if (source->max_bytes == 0 || source->live.load(std::memory_order_relaxed) + bytes <= source->max_bytes) {
    status = allocate_visible(*source, bytes, out);
    if (status == kOutOfMemory) {
      device.count(DeviceCounter::out_of_memory_retries);
      free_deferred();
      status = allocate_after_frees(*source, bytes, out);
    }
  }
  order_.gate().leave();
  if (status != kSuccess) return status;
  source->live.fetch_add(bytes, std::memory_order_relaxed);
  live_.fetch_add(bytes, std::memory_order_relaxed);
  device.count(DeviceCounter::native_allocations);
  Guard hold(lock_);
  blocks_[*out] = {source, bytes};
  if (source->holdings != nullptr) source->holdings->give(bytes, bytes);
  return kSuccess;
}

void Native::note_failure(driver::Context context, uint64_t bytes) {
  Source* const found = source_of(context);
  if (found == nullptr) return;
  const Source& source = *found;
  stats::device(source.device).count(DeviceCounter::out_of_memory);
  report::Shortage shortage;
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess || bytes > total || !report::shortage_is_due()) return;
  driver::NativeUsage usage;
  native_.usage(source.pool, &usage);
  shortage.device = source.device;
  shortage.asked = shortage.rounded = bytes;
  shortage.source = report::Shortage::Source::kNative;
  shortage.device_free = free;
  shortage.device_total = total;
  shortage.limit = source.max_bytes == 0 ? kUnlimited : source.max_bytes;
  shortage.limit_name = "CUPOOL_NATIVE_MAX";
  shortage.limited = source.live.load(std::memory_order_relaxed);
  shortage.reserved = usage.reserved;
  shortage.live = usage.used;
  report::write_shortage(shortage);
}

void Native::free_ordered(Source& source, Address address) {
  const bool ordered = driver_.record(source.context, source.freed) == kSuccess &&
                       driver_.wait_on(source.frees, source.freed) == kSuccess &&
                       native_.free_on(source.frees, address) == kSuccess;
  // The driver's plain free takes such memory too, and waits.
  if (!ordered) driver_.release_in(source.context, address);
  source.frees_made.fetch_add(1, std::memory_order_release);
}

void Native::free_deferred() {
  if (!has_deferred_.load(std::memory_order_relaxed) || !order_.gate().enter()) return;
  std::deque<std::pair<Address, Source*>> now;
  {
    Guard hold(lock_);
    now.swap(deferred_);
    has_deferred_.store(false, std::memory_order_relaxed);
    for (const auto& [address, source] : now) source->freeing.fetch_add(1, std::memory_order_relaxed);
  }
  for (const auto& [address, source] : now) {
    free_ordered(*source, address);
    source->freeing.fetch_sub(1, std::memory_order_release);
  }
  order_.gate().leave();
}

// Takes a block out of the list; null: it is none of ours.
Native::Source* Native::take_out_locked(Address address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return nullptr;
  Source* const source = found->second.source;
  const uint64_t bytes = found->second.bytes;
  blocks_.erase(found);
  source->live.fetch_sub(bytes, std::memory_order_relaxed);
  live_.fetch_sub(bytes, std::memory_order_relaxed);
  if (source->holdings != nullptr) source->holdings->take_back(bytes, bytes);
  stats::device(source->device).count(DeviceCounter::native_frees);
  return source;
}

bool Native::free(Address address) {
  free_deferred();
  // A context event would break a capture, so none may begin meanwhile, and while one runs the free has to
  // wait.
  const bool may_call = order_.gate().enter();
  Source* source = nullptr;
  {
    Guard hold(lock_);
    source = take_out_locked(address);
    if (source != nullptr && !may_call) {
      deferred_.emplace_back(address, source);
      has_deferred_.store(true, std::memory_order_relaxed);
    }
  }
  if (source != nullptr && may_call) free_ordered(*source, address);
  if (may_call) order_.gate().leave();
  return source != nullptr;
}

bool Native::free_on(Address address, driver::Stream stream) {
  Source* source = nullptr;
  {
    Guard hold(lock_);
    source = take_out_locked(address);
  }
  if (source == nullptr) return false;
  if (native_.free_on(stream, address) != kSuccess) free_ordered(*source, address);
  return true;
}

bool Native::owns(Address address) {
  Guard hold(lock_);
  return blocks_.find(address) != blocks_.end();
}

driver::Context Native::owner(Address address) {
  Guard hold(lock_);
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? nullptr : found->second.source->context;
}

uint64_t Native::trim(uint64_t keep) {
  free_deferred();
  uint64_t released = 0;
  for (Source* source : pinned_sources()) {
    driver::NativeUsage before;
    driver::NativeUsage after;
    native_.usage(source->pool, &before);
    native_.synchronize_stream(source->frees);
    native_.trim(source->pool, keep);
    native_.usage(source->pool, &after);
    released += before.reserved - std::min(before.reserved, after.reserved);
    source->freeing.fetch_sub(1, std::memory_order_release);
  }
  return released;
}

std::vector<Native::Source*> Native::pinned_sources() {
  Guard hold(lock_);
  for (Source* source : sources_) source->freeing.fetch_add(1, std::memory_order_relaxed);
  return sources_;
}

driver::NativeUsage Native::usage(int device) {
  driver::NativeUsage sum;
  for (Source* source : pinned_sources()) {
    driver::NativeUsage one;
    const bool known = source->device == device && native_.usage(source->pool, &one) == kSuccess;
    Guard hold(lock_);
    source->freeing.fetch_sub(1, std::memory_order_release);
    if (source->device != device) continue;
    // A driver that has shut down says nothing any more: then what it said last.
    if (!known) one = source->seen;
    source->seen = one;
    sum.used += one.used;
    sum.peak_used += one.peak_used;
    sum.reserved += one.reserved;
    sum.peak_reserved += one.peak_reserved;
  }
  Guard hold(lock_);
  if (const auto past = past_.find(device); past != past_.end()) {
    sum.peak_used = std::max(sum.peak_used, past->second.peak_used);
    sum.peak_reserved = std::max(sum.peak_reserved, past->second.peak_reserved);
  }
  return sum;
}

void Native::reset_peaks() {
  for (Source* source : pinned_sources()) {
    native_.reset_peaks(source->pool);
    source->freeing.fetch_sub(1, std::memory_order_release);
  }
  Guard hold(lock_);
  past_.clear();
}

Status Native::export_pool(driver::Context context, int* descriptor) {
  Source* const source = open(context);
  return source == nullptr ? kNotSupported : native_.export_pool(source->pool, descriptor);
}

Status Native::import_pool(int descriptor, driver::MemoryPool* out) {
  return native_.import_pool(descriptor, out);
}

Status Native::export_pointer(Address address, void* data) {
  driver::Stream stream = nullptr;
  {
    Guard hold(lock_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return kInvalidValue;
    stream = found->second.source->allocates;
  }
  // Another process's work knows nothing of our context's events.
  const Status status = native_.synchronize_stream(stream);
  return status != kSuccess ? status : native_.export_pointer(address, data);
}

Status Native::import_pointer(driver::MemoryPool pool, const void* data, Address* out) {
  return native_.import_pointer(pool, data, out);
}

}  // namespace cupool::pool
