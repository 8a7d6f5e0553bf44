// A lane is one stream as the order of work sees it, identified by a number that is not reused for another
// stream while it still matters. A set of lanes is kept only as precisely as it matters: none, one, or many.
// Pure values: no state, no lock, no driver calls.
#pragma once

#include <cstdint>

namespace cupool::order {

using Epoch = uint64_t;

enum class Lane : uint64_t {
  kNone = 0,
  kLegacy = 1,  // handles 0 and 1 are the same stream
  kMany = ~uint64_t{0},
};

// Stream handles are addresses, so multiples of eight; threads' default streams get odd numbers that are
// never reused in a process (they all share one handle value, and a thread's address can be reused).
inline Lane lane_of_handle(uint64_t handle) {
  return handle <= 1 ? Lane::kLegacy : static_cast<Lane>(handle);
}
inline Lane lane_of_thread(uint64_t number) { return static_cast<Lane>(number << 3 | 5); }

inline Lane unite(Lane a, Lane b) {
  if (a == b || b == Lane::kNone) return a;
  return a == Lane::kNone ? b : Lane::kMany;
}

}  // namespace cupool::order
