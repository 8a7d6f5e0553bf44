// The one place where hooks meet the pool: the process's pools, whether they serve at this moment and by the
// fast path, and how a CUDA stream is named for order/. Nothing here holds a lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/no_destroy.hpp"
#include "base/reentry.hpp"
#include "cuda/mapping.hpp"
#include "cuda/real.hpp"
#include "hooks/state/current.hpp"
#include "hooks/state/green_contexts.hpp"
#include "hooks/state/slow_reasons.hpp"
#include "memory/memory.hpp"
#include "order/lane.hpp"

namespace cupool::hooks {

namespace detail {
// Hidden in the declaration too, or every hook would load its address from the GOT.
[[gnu::visibility("hidden")]] extern constinit NoDestroy<memory::Memory> memory;
bool start_serving();
}  // namespace detail

inline constexpr memory::Memory& memory = detail::memory.value;

// Whether the pool serves this call: not when the user switched it off, not in a fork child, not when the
// driver itself called back into us.
inline bool is_serving() { return !is_slow_for_any(SlowReason::kNotServing) && !Reentry::inside(); }
// The same, and nothing has to be done to a block but hand it out or take it back (the fast path).
inline bool serves_plainly() {
  return detail::slow_reasons.load(std::memory_order_relaxed) == 0 && !Reentry::inside();
}
// The same for work, of which no listener has to be told.
inline bool submits_plainly() {
  return !is_slow_for_any(SlowReason::kNotServing, SlowReason::kWorkObserved) && !Reentry::inside();
}
// The same for an allocation, which may be the program's very first CUDA call.
inline bool serves_allocation() { return is_serving() || detail::start_serving(); }

inline CUresult to_result(driver::Status status) { return static_cast<CUresult>(status); }

// The lane of a stream whose handle 0 has been resolved (see named()).
order::Lane lane_of_this_thread();
inline order::Lane lane_of(CUstream stream) {
  if (stream == CU_STREAM_PER_THREAD) [[unlikely]]
    return lane_of_this_thread();
  return order::lane_of_handle(reinterpret_cast<uintptr_t>(stream));
}

// The context of a stream whose handle 0 has been resolved, with memory of ours or not. Null: it is no
// stream.
driver::Context owner_of(CUstream stream);
// The timeline for work on such a stream. Null: its context has no memory of ours.
order::Timeline* find_timeline(CUstream stream);
inline order::Timeline* timeline_of(CUstream stream) {
  if (order::Timeline* const only = memory.order().only()) [[likely]]
    return only;
  return find_timeline(stream);
}
// Whether work submitted to a stream is captured into a graph.
bool is_capturing(CUstream stream);

// From now on the driver's stream-ordered pool serves: first, or only when the pool has nothing left.
void start_native(bool first);

// The driver's virtual memory management, whether segments are mapped or not.
namespace detail {
[[gnu::visibility("hidden")]] extern constinit cuda::CudaMapping mapping;
}
inline constexpr driver::Mapping& mapping = detail::mapping;
// From now on segments are mapped, where the device can do that; and blocks may take `spill` of host memory.
void start_mapping(bool segments, Size spill);

// Errors of work, after which every call in the context fails until it is destroyed.
bool is_sticky(CUresult result);
// After a sticky error the pool steps aside for the failed context, and the driver answers from then on.
void note_failure(CUresult result);
// Whether any context has failed since the process began.
namespace detail {
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> any_failed;
}
inline bool has_failures() { return detail::any_failed.load(std::memory_order_relaxed); }
inline bool is_failure(CUresult result) { return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY; }
inline void note_result(CUresult result) {
  if (is_failure(result)) [[unlikely]]
    note_failure(result);
}

}  // namespace cupool::hooks
