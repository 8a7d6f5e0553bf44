// What hooks know of an address: the block of ours that holds it, cut from a segment of this process or
// opened under a sealed handle. Everything else is the driver's to answer. Only for questions: a free has its
// own, faster way.
#pragma once

#include "cuda/real.hpp"
#include "hooks/imports.hpp"
#include "hooks/serving.hpp"

namespace cupool::hooks {

struct Block {
  CUdeviceptr start = 0;
  size_t bytes = 0;  // as they were asked for
  CUdeviceptr segment = 0;
  uint64_t segment_number = 0;
  bool whole = false;     // alone in its segment
  bool imported = false;  // another process's
};

// kNobodys: in memory that we got from the driver, but no block holds it. For the application it does not
// exist.
enum class Whose { kDrivers, kBlock, kNobodys };

Whose look_up(CUdeviceptr address, Block* out);

// An address that no driver ever gave out: asking about it gives the driver's own words for a pointer it does
// not know.
inline constexpr CUdeviceptr kUnknownAddress = 1;

// Calls `f(memory::Mark&)` for the block that holds `address`.
template <typename F>
void with_mark(CUdeviceptr address, F&& f) {
  if (!imports.with_mark(address, f)) memory.with_mark(address, f);
}

}  // namespace cupool::hooks
