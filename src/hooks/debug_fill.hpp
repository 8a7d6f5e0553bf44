// Debug aids that users know from other allocators: blocks filled as they come and go (CUPOOL_FILL,
// CUPOOL_ZERO), and a report of every bad free with where the block was allocated and freed before
// (CUPOOL_CHECK). All off by default; then each costs a test of one word, or nothing. The filling is work on
// the device like any other, ordered after all work of the old life and before all of the new.
#pragma once

#include <atomic>

#include "cuda/real.hpp"
#include "memory/memory.hpp"

namespace cupool::hooks {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> watches;
}

// Once, at the first use of CUDA: what the options say.
void set_up_debug_fill();

// Whether anything is to be done as blocks come and go.
inline bool watches_blocks() { return detail::watches.load(std::memory_order_relaxed); }
// A block was just taken from the pool; the program does not have it yet. Who may touch it first: work, or
// the host?
enum class First { kWork, kHost };
void block_given(CUdeviceptr block, size_t bytes, First first);
// The program has freed what may be a block of ours; the pool does not have it yet.
void block_returns(CUdeviceptr block);
// The same when `stream` reaches the free.
void block_returns_on(CUdeviceptr block, CUstream stream);
// A context ends.
void forget_fill_stream(driver::Context context);
// A free that failed. Says so if the user wants it, with the stacks of this call and of those before.
void note_bad_free(CUdeviceptr pointer);

}  // namespace cupool::hooks
