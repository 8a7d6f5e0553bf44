// From the options, which may be percentages, to the numbers one pool works with; bounds that the options
// alone cannot see.
#include "pool/settings.hpp"

#include <algorithm>
#include <bit>

#include "pool/size_classes.hpp"

namespace cupool::pool {

Settings Settings::from(const config::Options& options, uint64_t device_bytes) {
  Settings settings;
  settings.min_block = std::bit_ceil(
      std::clamp<uint64_t>(options.min_block.of(device_bytes), 512, SizeClasses::kLargestMinimum));
  settings.small_limit =
      std::clamp(options.small_limit.of(device_bytes), settings.min_block, SizeClasses::kLargestSmall);
  settings.large_round = std::bit_ceil(std::max(options.large_round.of(device_bytes), kGranule));
  settings.segment_min = options.segment_min.of(device_bytes);
  settings.segment_max = options.segment_max.of(device_bytes);
  settings.segment_exact = options.segment_exact.of(device_bytes);
  settings.split_max = options.split_max.of(device_bytes);
  settings.thread_cache = options.thread_cache.of(device_bytes);
  settings.max_cached = options.max_cached.of(device_bytes);
  settings.limit = options.limit.of(device_bytes);
  settings.many_budget = options.many_budget.of(device_bytes);
  settings.decay_ms = options.decay_ms;
  settings.free_waits = options.free == config::FreeMode::kSync;
  return settings;
}

}  // namespace cupool::pool
