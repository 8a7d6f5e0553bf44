// Peer access between contexts: mapped memory and memory of other processes are told of it here, and order/
// learns of every context whose memory another one can access. Has no state and no lock.
#include "hooks/sharing/blocks.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/submit/forward.hpp"

namespace cupool::hooks {

using cuda::real;
using driver::Context;
using stats::Event;

namespace {

// The driver's own allocations follow peer access by themselves; mapped memory is told, device by device, and
// so is that of other processes, which may be opened where the pool does not serve.
void let_in(CUcontext peer, bool allowed) {
  int device = 0;
  if (Reentry::inside() || memory.driver().device(&device) != driver::kSuccess) return;
  const pool::Pools::Guest guest{current_context(), device};
  memory.set_access(reinterpret_cast<Context>(peer), guest, allowed);
  imports.apply_access(peer, device);
}

}  // namespace

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  const CUresult result = forward(Event::peer_changes, real.cuCtxEnablePeerAccess, peer, flags);
  // Already enabled counts, too: the thread that enabled it may not have reached this line yet.
  const bool is_open = result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (is_open) let_in(peer, true);
  if (is_open && is_serving()) {
    // The memory of a green context is its primary one's.
    const CUcontext owner = green_contexts.any() ? green_contexts.owner(peer) : peer;
    memory.order().expect_peers(reinterpret_cast<Context>(owner), "peer access was enabled");
  }
  return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  const CUresult result = forward(Event::peer_changes, real.cuCtxDisablePeerAccess, peer);
  if (result == CUDA_SUCCESS) let_in(peer, false);
  return result;
}

}  // namespace cupool::hooks
