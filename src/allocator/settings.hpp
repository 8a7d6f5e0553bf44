// The thresholds that all allocators obey: the options with percentages resolved for the device. Made with
// the first allocation of a context, then immutable; no lock.
#pragma once

#include <cstdint>

#include "config/options.hpp"

namespace cupool::allocator {

struct Settings {
  uint64_t max_cached = ~uint64_t{0};
  uint64_t limit = ~uint64_t{0};
  uint64_t many_budget = 128 << 20;
  bool free_waits = false;

  static Settings from(const config::Options& options, uint64_t device_bytes) {
    Settings settings;
    settings.max_cached = options.max_cached.of(device_bytes);
    settings.limit = options.limit.of(device_bytes);
    settings.many_budget = options.many_budget.of(device_bytes);
    settings.free_waits = options.free == config::FreeMode::kSync;
    return settings;
  }
};

}  // namespace cupool::allocator
