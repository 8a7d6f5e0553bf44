// See green_contexts.hpp. There are few of them, so a list will do.
#include "hooks/state/green_contexts.hpp"

#include <algorithm>

#include "base/after_fork.hpp"

namespace cupool::hooks {

constinit GreenContexts green_contexts;
CUPOOL_AFTER_FORK(green_contexts_after_fork, [] { green_contexts.forget_after_fork(); });

void GreenContexts::created(CUgreenCtx green, CUdevice device) {
  Guard hold(lock_);
  all_.value.push_back({green, device});
  any_.store(true, std::memory_order_relaxed);
}

void GreenContexts::named(CUgreenCtx green, CUcontext context, CUcontext primary) {
  Guard hold(lock_);
  for (Green& one : all_.value) {
    if (one.green != green) continue;
    one.context = context;
    one.primary = primary;
  }
}

bool GreenContexts::remove(CUgreenCtx green, CUdevice* device, CUcontext* context) {
  Guard hold(lock_);
  const auto found = std::find_if(all_.value.begin(), all_.value.end(),
                                  [&](const Green& one) { return one.green == green; });
  if (found == all_.value.end()) return false;
  *device = found->device;
  *context = found->context;
  all_.value.erase(found);
  return true;
}

std::vector<CUcontext> GreenContexts::remove_all(CUdevice device) {
  std::vector<CUcontext> contexts;
  Guard hold(lock_);
  for (const Green& one : all_.value) {
    if (one.device == device && one.context != nullptr) contexts.push_back(one.context);
  }
  std::erase_if(all_.value, [&](const Green& one) { return one.device == device; });
  return contexts;
}

bool GreenContexts::device_of(CUgreenCtx green, CUdevice* device) {
  Guard hold(lock_);
  for (const Green& one : all_.value) {
    if (one.green != green) continue;
    *device = one.device;
    return true;
  }
  return false;
}

CUcontext GreenContexts::owner(CUcontext context) {
  Guard hold(lock_);
  for (const Green& one : all_.value) {
    if (one.context == context && one.primary != nullptr) return one.primary;
  }
  return context;
}

void GreenContexts::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  all_.value.clear();
  any_.store(false, std::memory_order_relaxed);
}

}  // namespace cupool::hooks
