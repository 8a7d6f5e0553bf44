// A pool's thresholds: the options with percentages resolved for its device, clamped to what the pool can
// handle. Made with the pool, then immutable.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "allocator/settings.hpp"
#include "pool/range.hpp"
#include "pool/size_classes.hpp"

namespace cupool::pool {

struct Settings : allocator::Settings {
  uint64_t min_block = 512;
  uint64_t small_limit = 32 << 10;
  uint64_t large_round = 16 << 10;
  uint64_t segment_min = 2 << 20;
  uint64_t segment_max = ~uint64_t{0};
  uint64_t segment_exact = 20 << 20;
  uint64_t split_max = ~uint64_t{0};
  uint64_t thread_cache = 4 << 20;
  uint64_t chunk = 32 << 20;

  static Settings from(const config::Options& options, uint64_t device_bytes) {
    Settings settings;
    static_cast<allocator::Settings&>(settings) = allocator::Settings::from(options, device_bytes);
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
    settings.chunk = options.chunk.of(device_bytes) & ~(kPageBytes - 1);
    return settings;
  }
};

}  // namespace cupool::pool
