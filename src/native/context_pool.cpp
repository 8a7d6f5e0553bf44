// See context_pool.hpp.
#include "native/context_pool.hpp"

#include <new>

#include "allocator/settings.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "config/options.hpp"

namespace cupool::native {

using driver::kSuccess;

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

ContextPool* ContextPool::make(driver::Driver& driver, driver::NativeDriver& native,
                               driver::Context context) {
  auto* const made = new (std::nothrow) ContextPool;
  if (made == nullptr) return nullptr;
  made->context = context;
  made->same_since_ms = now_ns() / 1'000'000;
  if (made->fill(driver, native)) return made;
  discard(native, made);
  return nullptr;
}

void ContextPool::discard(driver::NativeDriver& native, ContextPool* pool) {
  if (pool->pool != nullptr) native.destroy_pool(pool->pool);
  delete pool;
}

bool ContextPool::fill(driver::Driver& driver, driver::NativeDriver& native) {
  size_t free = 0;
  size_t total = 0;
  if (driver.memory(&free, &total) != kSuccess || driver.device(&device) != kSuccess) return false;
  const driver::NativeSettings settings = settings_for(total);
  max_bytes = settings.max_bytes;
  const allocator::Settings all = allocator::Settings::from(config::options(), total);
  limit = all.limit;
  free_waits = all.free_waits;
  if (native.create_pool(device, settings, &pool) != kSuccess) return false;
  tell_settings(native, pool, device, settings);
  return native.create_stream(&allocates) == kSuccess && native.create_stream(&frees) == kSuccess &&
         driver.create_event(context, &allocated) == kSuccess &&
         driver.create_event(context, &freed) == kSuccess &&
         driver.create_event(context, &drained) == kSuccess;
}

}  // namespace cupool::native
