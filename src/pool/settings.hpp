// The pool's thresholds as numbers: what the options say, with percentages of a device worked out. One per
// pool, made when the pool is, and read only from then on.
#pragma once

#include <cstdint>

#include "config/options.hpp"

namespace cupool::pool {

struct Settings {
  uint64_t min_block = 512;
  uint64_t small_limit = 32 << 10;
  uint64_t large_round = 16 << 10;
  uint64_t segment_min = 20 << 20;
  uint64_t segment_max = ~uint64_t{0};
  uint64_t segment_exact = 20 << 20;
  uint64_t split_max = ~uint64_t{0};
  uint64_t thread_cache = 4 << 20;
  uint64_t max_cached = ~uint64_t{0};
  uint64_t limit = ~uint64_t{0};
  uint64_t many_budget = 128 << 20;
  uint64_t decay_ms = 0;
  bool free_waits = false;

  static Settings from(const config::Options& options, uint64_t device_bytes);
};

}  // namespace cupool::pool
