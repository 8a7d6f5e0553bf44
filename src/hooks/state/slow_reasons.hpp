// Why a call must not take the fast path: a mask of reasons, each set and cleared by the one file that knows.
// The fast path of memory tests the whole word, that of work two neighbouring bits: neither takes an
// instruction more than a test for one reason. Holds no lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace cupool::hooks {

enum class SlowReason : uint32_t {
  kNotServing = 1 << 0,      // the driver answers everything
  kWorkObserved = 1 << 1,    // a listener wants submissions (observe/observer.hpp)
  kMemoryObserved = 1 << 2,  // ... allocations and frees
  kCallsObserved = 1 << 3,   // ... waits and calls that are passed on, which have no fast path
  kLoadsPending = 1 << 4,    // an allocation has to check loaded libraries first (doors/loads.cpp)
};

namespace detail {
// Hidden in the declaration too, or every hook would load its address from the GOT.
[[gnu::visibility("hidden")]] extern constinit std::atomic<uint32_t> slow_reasons;
}  // namespace detail

void set_slow(SlowReason reason, bool holds);
inline bool is_slow_for(SlowReason reason) {
  return (detail::slow_reasons.load(std::memory_order_acquire) & static_cast<uint32_t>(reason)) != 0;
}
template <typename... Reasons>
[[gnu::always_inline]] inline bool is_slow_for_any(Reasons... reasons) {
  return (detail::slow_reasons.load(std::memory_order_relaxed) & (static_cast<uint32_t>(reasons) | ...)) != 0;
}

}  // namespace cupool::hooks
