// See current.hpp.
#include "hooks/state/current.hpp"

#include <cstdlib>

#include "cuda/real.hpp"
#include "hooks/state/green_contexts.hpp"
#include "hooks/state/permission.hpp"

namespace cupool::hooks {

namespace {

constexpr uint64_t kFirstTurn = 1;
constinit std::atomic<bool> may_remember{true};
constinit std::atomic<bool> watches_exit{false};

// The driver shuts down in an exit handler that it installed before the first context existed, so a handler
// installed now runs before it.
void watch_exit() {
  if (!watches_exit.exchange(true, std::memory_order_relaxed)) std::atexit(before_the_driver_ends);
}

}  // namespace

constinit thread_local detail::KnownContext detail::known_context;
constinit std::atomic<uint64_t> detail::context_turn{kFirstTurn};

driver::Context detail::ask_current_context() {
  if (!thread_may_call()) return nullptr;
  const uint64_t turn = context_turn.load(std::memory_order_acquire);
  CUcontext current = nullptr;
  if (cuda::real.cuCtxGetCurrent(&current) != CUDA_SUCCESS) current = nullptr;
  // Once contexts have ended, the handle may be stale or already reused for another context.
  CUdevice device = 0;
  if (turn != kFirstTurn && current != nullptr && cuda::real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
    current = nullptr;
  if (green_contexts.any()) [[unlikely]]
    current = green_contexts.owner(current);
  const auto context = reinterpret_cast<driver::Context>(current);
  if (context != nullptr) watch_exit();
  // "No context" is not cached: a thread may get one in many ways, and speed does not matter without one.
  known_context = {context, context != nullptr && may_remember.load(std::memory_order_relaxed) ? turn : 0};
  return context;
}

void forget_current_contexts() { detail::context_turn.fetch_add(1, std::memory_order_acq_rel); }

void stop_remembering_contexts() {
  may_remember.store(false, std::memory_order_relaxed);
  forget_current_contexts();
}

}  // namespace cupool::hooks
