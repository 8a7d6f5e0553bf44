// Looks up an address: the block of ours that holds it, cut from a segment of this process or opened under a
// sealed handle. Every other address is left to the driver. For queries only: a free takes its own, faster
// path.
#pragma once

#include "cuda/real.hpp"
#include "hooks/sharing/imports.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

struct FoundBlock {
  CUdeviceptr start = 0;
  size_t bytes = 0;  // as they were asked for
  CUdeviceptr segment = 0;
  uint64_t segment_number = 0;
  bool dedicated = false;  // alone in its segment
  bool imported = false;   // another process's
  bool mapped = false;     // made of chunks, which the driver does not know as an allocation of cuMemAlloc's
  bool free_pending = false;  // a stream has yet to free it
  driver::Context context = nullptr;
};

// kNotLive: inside one of our segments, but in no block. To the application it is not allocated memory.
enum class Whose { kDrivers, kBlock, kNotLive };

// Whether there may be any: the pool serves, or, where the user switched it off, blocks of other processes
// are open.
inline bool may_have_blocks() { return is_serving() || (imports.any() && !Reentry::inside()); }

Whose look_up(CUdeviceptr address, FoundBlock* out);
// The same for a call whose effect stays with the block: a block whose stream-ordered free is pending counts
// as freed.
Whose look_up_lasting(CUdeviceptr address, FoundBlock* out);

// An address that no driver ever hands out: querying it yields the driver's own answer for an unknown
// pointer.
inline constexpr CUdeviceptr kUnknownAddress = 1;

// Calls `f(memory::Mark&)` for the block that holds `address`.
template <typename F>
void with_mark(CUdeviceptr address, F&& f) {
  if (!imports.with_mark(address, f)) memory.with_mark(address, f);
}

}  // namespace cupool::hooks
