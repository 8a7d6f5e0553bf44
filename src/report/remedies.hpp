// Which settings would have let a refused request pass: computed from the figures of the shortage, in the
// order of what they cost, and none that is set already. A pure function: asks nobody, changes nothing.
#pragma once

#include <array>
#include <cstdint>

#include "report/shortage.hpp"

namespace cupool::report {

// What is set now, and what this machine can do.
struct Settings {
  bool is_mapped = false;     // CUPOOL_SEGMENTS
  bool can_map = true;        // the device can
  uint64_t chunk = 0;         // CUPOOL_CHUNK
  uint64_t exact = 0;         // CUPOOL_SEGMENT_EXACT
  uint64_t spill = 0;         // CUPOOL_SPILL
  uint64_t host_free = 0;     // host memory that lies free
  bool has_fallback = false;  // CUPOOL_FALLBACK
};

enum class Setting { kLimit, kMapped, kChunk, kExact, kDedicated, kUncached, kSpill, kFallback };

struct Remedy {
  Setting setting;
  uint64_t bytes = 0;  // its value, where it is a size
};

struct Remedies {
  std::array<Remedy, 6> list{};
  int count = 0;

  void add(Setting setting, uint64_t bytes = 0) {
    if (count < static_cast<int>(list.size())) list[count++] = {setting, bytes};
  }
};

Remedies remedies(const Shortage& shortage, const Settings& settings);

}  // namespace cupool::report
