// Debug aids that users know from other allocators: fill patterns on allocation and free (CUPOOL_FILL,
// CUPOOL_ZERO), and a report of every bad free with the call stacks of the block's allocation and earlier
// free (CUPOOL_CHECK). All off by default; then each costs a test of one word, or nothing. A fill is work on
// the device like any other, ordered after all work of the old life and before all of the new.
#pragma once

#include "cuda/real.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

// Reads the options; once, at the first use of CUDA.
void set_up_debug_fill();

// Whether allocations and frees have to be filled or recorded at all.
inline bool watches_blocks() { return is_slow_for(SlowReason::kBlocksWatched); }
// A block was just taken from the pool and not yet returned to the program. `first`: whether device work or
// the host may touch it first.
enum class First { kWork, kHost };
void block_given(CUdeviceptr block, size_t bytes, First first);
// The program frees what may be a block of ours; the pool has not taken it back yet.
void block_returns(CUdeviceptr block);
// The same for a free ordered on `stream`.
void block_returns_on(CUdeviceptr block, CUstream stream);
// The driver has freed a block of ours by itself.
void block_has_gone(CUdeviceptr block);
// A context ends.
void forget_fill_stream(driver::Context context);
// Reports a failed free, under CUPOOL_CHECK, with the stacks of this call and of the earlier ones.
void note_bad_free(CUdeviceptr pointer);

}  // namespace cupool::hooks
