// See native_pool.hpp. Two threads may record the same event one after the other: each then waits for the
// later record, which covers its own, because both records are of one stream or of one context.
#include "native/native_pool.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include "allocator/settings.hpp"
#include "base/clock.hpp"
#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "report/shortage.hpp"
#include "upstream/limit.hpp"
#include "upstream/retry.hpp"

namespace cupool::native {

using driver::kInvalidValue;
using driver::kNotSupported;
using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;
using upstream::Limit;

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

// Logs the settings as the driver reads them back.
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

NativePool::Source* NativePool::find_source(driver::Context context) const {
  for (Source* source : sources_) {
    if (source->context == context) return source;
  }
  return nullptr;
}

NativePool::Source* NativePool::source_of(driver::Context context) {
  Guard hold(lock_);
  return find_source(context);
}

bool NativePool::fill(Source* source) {
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess || driver_.device(&source->device) != kSuccess) return false;
  const driver::NativeSettings settings = settings_for(total);
  source->max_bytes = settings.max_bytes;
  const allocator::Settings all = allocator::Settings::from(config::options(), total);
  source->limit = all.limit;
  source->free_waits = all.free_waits;
  if (native_.create_pool(source->device, settings, &source->pool) != kSuccess) return false;
  tell_settings(native_, source->pool, source->device, settings);
  return native_.create_stream(&source->allocates) == kSuccess &&
         native_.create_stream(&source->frees) == kSuccess &&
         driver_.create_event(source->context, &source->allocated) == kSuccess &&
         driver_.create_event(source->context, &source->freed) == kSuccess;
}

NativePool::Source* NativePool::open(driver::Context context) {
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
  made->same_since_ms = now_ns() / 1'000'000;
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
      made->tally = new (std::nothrow) stats::ThreadTally(device);
      if (made->tally != nullptr) device.enlist(*made->tally);
      sources_.push_back(made);
    }
  }
  if (earlier != nullptr) {
    // Another thread won the race; streams and events die with the context.
    native_.destroy_pool(made->pool);
    delete made;
    return earlier;
  }
  free_orphans(*made);
  return made;
}

Status NativePool::allocate_visible(Source& source, uint64_t bytes, Address* out) {
  Status status = native_.allocate_on(source.pool, source.allocates, bytes, out);
  if (status != kSuccess) return status;
  status = native_.record_on(source.allocates, source.allocated);
  if (status == kSuccess && order_.gate().enter(source.context)) {
    status = driver_.order_after(source.context, source.allocated);
    order_.gate().leave(source.context);
  } else {
    status = driver::kUnknown;
  }
  // Without the event the host waits instead.
  return status == kSuccess ? kSuccess : native_.synchronize_stream(source.allocates);
}

// Freed blocks, also those that other threads free meanwhile, may still be waiting for their work: retry.
Status NativePool::allocate_from_driver(Source& source, uint64_t bytes, Address* out) {
  const Status status = allocate_visible(source, bytes, out);
  if (status != kOutOfMemory) return status;
  stats::device(source.device).count(DeviceCounter::out_of_memory_retries);
  free_deferred();
  uint64_t seen = ~uint64_t{0};
  return upstream::ask_again(
      [&] {
        const uint64_t frees = source.frees_made.load(std::memory_order_acquire);
        if (frees == seen) return false;
        seen = frees;
        native_.synchronize_stream(source.frees);
        native_.trim(source.pool, 0);
        return true;
      },
      [&] { return allocate_visible(source, bytes, out); });
}

Status NativePool::allocate(driver::Context context, uint64_t bytes, Address* out) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  if (!call.is_open() || host::is_short()) return allocator::kDeclined;
  Source* const source = open(context);
  if (source == nullptr) return kNotSupported;
  // During a capture the plain driver call answers.
  if (order_.is_capturing()) return device_memory_.allocate(bytes, out);
  Status status = kOutOfMemory;
  // Booked first, as for the limit: two threads together must not pass the maximum.
  const uint64_t live = source->live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if ((source->max_bytes == 0 || live <= source->max_bytes) &&
      Limit::book(source->device, bytes, source->limit)) {
    status = allocate_from_driver(*source, bytes, out);
    status == kSuccess ? Limit::asked(source->device) : Limit::refused(source->device, bytes);
  }
  if (status != kSuccess) {
    source->live.fetch_sub(bytes, std::memory_order_relaxed);
    return status;
  }
  stats::device(source->device).count(DeviceCounter::native_allocations);
  Guard hold(lock_);
  blocks_[*out] = {source, bytes};
  if (source->tally != nullptr) source->tally->give(bytes, bytes);
  return kSuccess;
}

void NativePool::note_failure(driver::Context context, uint64_t bytes) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Source* const found = call.is_open() ? source_of(context) : nullptr;
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
  shortage.limit = source.limit;
  shortage.limited = Limit::booked(source.device);
  const uint64_t live = source.live.load(std::memory_order_relaxed);
  if (source.max_bytes != 0 && live + bytes > source.max_bytes) {
    shortage.limit = source.max_bytes;
    shortage.limit_name = "CUPOOL_NATIVE_MAX";
    shortage.limited = live;
  }
  shortage.reserved = usage.reserved;
  shortage.live = usage.used;
  report::write_shortage(shortage);
}

void NativePool::free_ordered(Source& source, Address address) {
  const bool ordered = driver_.record(source.context, source.freed) == kSuccess &&
                       driver_.wait_on(source.frees, source.freed) == kSuccess &&
                       native_.free_on(source.frees, address) == kSuccess;
  // The driver's plain free accepts such memory too, but waits.
  if (!ordered) device_memory_.release_in(source.context, address);
  source.frees_made.fetch_add(1, std::memory_order_release);
}

// A context event would break a capture: so no capture may begin in the context meanwhile, and during one the
// free is deferred. It is also deferred in a context that is ending, which sets its blocks aside, or has
// failed.
void NativePool::free_or_defer(Source& source, Address address, bool is_open) {
  if (is_open && order_.gate().enter(source.context)) {
    free_ordered(source, address);
    order_.gate().leave(source.context);
    return;
  }
  Guard hold(lock_);
  deferred_.emplace_back(address, &source);
  has_deferred_.store(true, std::memory_order_relaxed);
}

void NativePool::free_deferred() {
  if (!has_deferred_.load(std::memory_order_relaxed)) return;
  for_each_source([&](Source& source, bool is_open) {
    if (!is_open || !order_.gate().enter(source.context)) return;
    std::vector<Address> now;
    {
      Guard hold(lock_);
      for (const auto& [address, from] : deferred_) {
        if (from == &source) now.push_back(address);
      }
      std::erase_if(deferred_, [&](const auto& one) { return one.second == &source; });
      if (deferred_.empty()) has_deferred_.store(false, std::memory_order_relaxed);
    }
    for (const Address address : now) free_ordered(source, address);
    order_.gate().leave(source.context);
  });
}

// Takes a block out of the list; null: not ours.
NativePool::Source* NativePool::take_out_locked(Address address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return nullptr;
  Source* const source = found->second.source;
  const uint64_t bytes = found->second.bytes;
  blocks_.erase(found);
  source->live.fetch_sub(bytes, std::memory_order_relaxed);
  Limit::give_back(source->device, bytes);
  if (source->tally != nullptr) source->tally->take_back(bytes, bytes);
  stats::device(source->device).count(DeviceCounter::native_frees);
  return source;
}

Freed NativePool::free(Address address, Waits waits) {
  free_deferred();
  driver::Context context = nullptr;
  {
    Guard hold(lock_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return Freed::kNotOurs;
    context = found->second.source->context;
  }
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Source* source = nullptr;
  {
    Guard hold(lock_);
    source = take_out_locked(address);
  }
  if (source == nullptr) return Freed::kNotOurs;
  free_or_defer(*source, address, call.is_open());
  order::Timeline* const order = source->free_waits && call.is_open() ? order_.of(context) : nullptr;
  if (order != nullptr && waits == Waits::kIfAsked) order->wait_for_all();
  return Freed::kDone;
}

bool NativePool::free_on(Address address, driver::Stream stream) {
  Source* source = nullptr;
  driver::Context context = nullptr;
  {
    Guard hold(lock_);
    source = take_out_locked(address);
    if (source != nullptr) context = source->context;
  }
  if (source == nullptr) return false;
  if (native_.free_on(stream, address) == kSuccess) return true;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  free_or_defer(*source, address, call.is_open());
  return true;
}

bool NativePool::has_block(Address address) {
  Guard hold(lock_);
  return blocks_.find(address) != blocks_.end();
}

template <typename F>
void NativePool::for_each_source(F&& f) {
  std::vector<Source*> sources;
  {
    Guard hold(lock_);
    sources = sources_;
  }
  for (Source* const source : sources) {
    const InFlight::Call call(in_flight_, source->context, InFlight::Kind::kRelease, source->device);
    // It may have ended before the call began; the handle may be another context's by now.
    const bool is_open = call.is_open() && source_of(source->context) == source;
    f(*source, is_open);
  }
}

uint64_t NativePool::trim(uint64_t keep, int device) {
  if (order_.is_capturing()) return 0;
  if (!order::CaptureGate::is_relaxed()) free_deferred();
  uint64_t released = 0;
  for_each_source([&](Source& source, bool is_open) {
    if (!is_open || (device != allocator::kEveryDevice && device != source.device)) return;
    driver::NativeUsage before;
    driver::NativeUsage after;
    native_.usage(source.pool, &before);
    native_.synchronize_stream(source.frees);
    native_.trim(source.pool, keep);
    native_.usage(source.pool, &after);
    released += before.reserved - std::min(before.reserved, after.reserved);
  });
  return released;
}

uint64_t NativePool::most_releasable(int device, uint64_t) {
  uint64_t bytes = 0;
  for_each_source([&](Source& source, bool is_open) {
    if (!is_open || (device != allocator::kEveryDevice && device != source.device)) return;
    driver::NativeUsage usage;
    native_.usage(source.pool, &usage);
    bytes += usage.reserved;
  });
  return bytes;
}

// Unlike trim(), does not wait for frees that their stream has yet to reach: a later call finds that memory.
uint64_t NativePool::release_idle(const allocator::Idle& which) {
  if (order_.is_capturing()) return 0;
  const uint64_t now = now_ns() / 1'000'000;
  uint64_t released = 0;
  for_each_source([&](Source& source, bool is_open) {
    if (!is_open || (which.device != allocator::kEveryDevice && which.device != source.device)) return;
    if (!which.goes_on()) return;
    const uint64_t frees = source.frees_made.load(std::memory_order_relaxed);
    if (source.frees_seen.exchange(frees, std::memory_order_relaxed) != frees)
      source.same_since_ms.store(now, std::memory_order_relaxed);
    if (now - source.same_since_ms.load(std::memory_order_relaxed) < which.for_ms) return;
    driver::NativeUsage before;
    driver::NativeUsage after;
    native_.usage(source.pool, &before);
    if (before.reserved > before.used) native_.trim(source.pool, 0);
    native_.usage(source.pool, &after);
    released += before.reserved - std::min(before.reserved, after.reserved);
  });
  return released;
}

driver::NativeUsage NativePool::usage(int device) {
  driver::NativeUsage sum;
  for_each_source([&](Source& source, bool is_open) {
    if (source.device != device) return;
    driver::NativeUsage one;
    const bool known = is_open && native_.usage(source.pool, &one) == kSuccess;
    Guard hold(lock_);
    // A driver that has shut down does not answer: use its last answer.
    if (!known) one = source.seen;
    source.seen = one;
    sum.used += one.used;
    sum.peak_used += one.peak_used;
    sum.reserved += one.reserved;
    sum.peak_reserved += one.peak_reserved;
  });
  Guard hold(lock_);
  if (const auto past = past_.find(device); past != past_.end()) {
    sum.peak_used = std::max(sum.peak_used, past->second.peak_used);
    sum.peak_reserved = std::max(sum.peak_reserved, past->second.peak_reserved);
  }
  return sum;
}

void NativePool::reset_peaks() {
  for_each_source([&](Source& source, bool is_open) {
    if (is_open) native_.reset_peaks(source.pool);
  });
  Guard hold(lock_);
  past_.clear();
}

Status NativePool::export_pool(driver::Context context, int* descriptor) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Source* const source = call.is_open() ? open(context) : nullptr;
  return source == nullptr ? kNotSupported : native_.export_pool(source->pool, descriptor);
}

Status NativePool::import_pool(int descriptor, driver::MemoryPool* out) {
  return native_.import_pool(descriptor, out);
}

Status NativePool::export_pointer(Address address, void* data) {
  driver::Stream stream = nullptr;
  {
    Guard hold(lock_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return kInvalidValue;
    stream = found->second.source->allocates;
  }
  // Work of another process is not ordered by our context's events.
  const Status status = native_.synchronize_stream(stream);
  return status != kSuccess ? status : native_.export_pointer(address, data);
}

Status NativePool::import_pointer(driver::MemoryPool pool, const void* data, Address* out) {
  return native_.import_pointer(pool, data, out);
}

// ---- The end of a context: its memory is set aside before the driver acts, and freed when it has.

void NativePool::begin_end(driver::Context context, uint64_t ending) {
  Source* source = nullptr;
  {
    Guard hold(lock_);
    source = find_source(context);
    if (source == nullptr) return;
    Orphans left{ending, source, {}, {}};
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      const bool theirs = block->second.source == source;
      if (theirs) left.blocks.emplace_back(block->first, block->second.bytes);
      block = theirs ? blocks_.erase(block) : std::next(block);
    }
    for (const auto& [address, from] : deferred_) {
      if (from == source) left.deferred.push_back(address);
    }
    std::erase_if(deferred_, [&](const auto& one) { return one.second == source; });
    std::erase(sources_, source);
    orphans_.push_back(std::move(left));
  }
  remember(*source);
}

// Keeps the peaks of a context that ends; if the driver no longer answers, those of its last answer.
void NativePool::remember(const Source& source) {
  driver::NativeUsage last;
  const bool known = native_.usage(source.pool, &last) == kSuccess;
  Guard hold(lock_);
  if (!known) last = source.seen;
  driver::NativeUsage& past = past_[source.device];
  past.peak_used = std::max(past.peak_used, last.peak_used);
  past.peak_reserved = std::max(past.peak_reserved, last.peak_reserved);
}

void NativePool::ended(uint64_t ending, bool gone) {
  Source* source = nullptr;
  bool empty = false;
  {
    Guard hold(lock_);
    const auto found = std::find_if(orphans_.begin(), orphans_.end(),
                                    [&](const Orphans& one) { return one.ending == ending; });
    if (found == orphans_.end()) return;
    source = found->source;
    found->gone = gone;
    empty = gone && found->blocks.empty() && found->deferred.empty();
    if (gone) {
      Limit::give_back(source->device, source->live.exchange(0, std::memory_order_relaxed));
      if (source->tally != nullptr) source->tally->drop();
    } else {
      restore(*found);
    }
    if (empty || !gone) orphans_.erase(found);
  }
  if (!gone) order_.join(source->context);
  if (empty) retire(*source);
}

void NativePool::restore(const Orphans& orphans) {
  sources_.push_back(orphans.source);
  for (const auto& [address, bytes] : orphans.blocks) blocks_[address] = {orphans.source, bytes};
  for (const Address address : orphans.deferred) deferred_.emplace_back(address, orphans.source);
  if (!deferred_.empty()) has_deferred_.store(true, std::memory_order_relaxed);
}

void NativePool::retire(const Source& source) {
  remember(source);
  native_.destroy_pool(source.pool);
}

// The memory belongs to the device and outlives the context. Only once the context is gone is all its work
// certainly done and the memory unused.
void NativePool::free_orphans(Source& source) {
  std::vector<Orphans> now;
  {
    Guard hold(lock_);
    const auto theirs = std::stable_partition(orphans_.begin(), orphans_.end(), [&](const Orphans& one) {
      return !one.gone || one.source->device != source.device;
    });
    now.assign(std::make_move_iterator(theirs), std::make_move_iterator(orphans_.end()));
    orphans_.erase(theirs, orphans_.end());
  }
  for (const Orphans& one : now) {
    // If the driver took the block back with its context, the address may have been reused.
    const auto free = [&](Address address) {
      if (native_.pool_of(address) == one.source->pool) native_.free_on(source.frees, address);
    };
    for (const auto& [address, bytes] : one.blocks) free(address);
    for (const Address address : one.deferred) free(address);
    retire(*one.source);
  }
}

}  // namespace cupool::native
