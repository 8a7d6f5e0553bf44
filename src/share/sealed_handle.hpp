// The handle of a block that was cut from a segment. The driver can only name the whole segment, so its
// handle is scrambled, and the place of the block goes into the eight bytes that the driver ignores: a
// process with cupool opens it at the block, any other is refused by the driver instead of reading a
// neighbour's data. Not a secret (docs/security.md). Pure functions; no state.
#pragma once

#include <cstdint>

#include "share/handle.hpp"

namespace cupool::share {

// A block inside its segment.
struct Place {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// False, and nothing changed: this place or this driver's handle cannot be sealed.
bool seal(Handle* handle, const Place& place);
// Back to the driver's handle of the segment. False: it is not a sealed handle.
bool unseal(Handle* handle, Place* place);

}  // namespace cupool::share
