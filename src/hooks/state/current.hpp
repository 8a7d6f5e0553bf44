// The calling thread's current context, cached: asking the driver costs a third of an allocation. Every
// function that changes it is hooked and invalidates the cache, for its own thread or, where contexts end,
// for all. If a program may change it behind our back, the driver is asked each time. Holds no lock.
#pragma once

#include <atomic>

#include "driver/driver.hpp"

namespace cupool::hooks {

namespace detail {
struct KnownContext {
  driver::Context context = nullptr;
  uint64_t turn = 0;  // of `context_turn` when the driver said so; 0: not known
};
[[gnu::visibility("hidden")]] extern constinit thread_local KnownContext known_context;
[[gnu::visibility("hidden")]] extern constinit std::atomic<uint64_t> context_turn;
driver::Context ask_current_context();
}  // namespace detail

// The context that an allocation made now belongs to. Null: none, or the driver would refuse.
inline driver::Context current_context() {
  const detail::KnownContext& known = detail::known_context;
  if (known.turn == detail::context_turn.load(std::memory_order_acquire)) [[likely]]
    return known.context;
  return detail::ask_current_context();
}

// The same without asking the driver: null also when it is not cached.
inline driver::Context known_current_context() {
  const detail::KnownContext& known = detail::known_context;
  return known.turn == detail::context_turn.load(std::memory_order_acquire) ? known.context : nullptr;
}

// This thread's current context changes.
inline void forget_current_context() { detail::known_context.turn = 0; }
// A context ended, on whichever threads it is current.
void forget_current_contexts();
// From now on contexts may change unseen.
void stop_remembering_contexts();

// Called at the last moment at which the driver still answers, if the process ever had a context; defined by
// the layer above.
void before_the_driver_ends();

}  // namespace cupool::hooks
