// Sums and shares over what several processes say of themselves: a figure that is out of all bounds must not
// make a sum small. Pure functions.
#pragma once

#include <cstdint>

namespace cupool::tools {

// Saturating addition.
inline uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

// Of nothing there is no share.
inline double share(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace cupool::tools
