// Green contexts: parts of a device's primary context. Each has a context handle through which a program
// makes it current, but memory allocated in it belongs to the primary context: it outlives the green context
// and ends with the primary one. So the pool files that memory under the primary context's handle. The lock
// is never held across a call of the driver.
#pragma once

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "base/no_destroy.hpp"
#include "cuda/cuda_api.hpp"

namespace cupool::hooks {

class GreenContexts {
 public:
  void created(CUgreenCtx green, CUdevice device);
  // The driver gave the program `context` for `green`; `primary` is the device's primary context.
  void named(CUgreenCtx green, CUcontext context, CUcontext primary);
  // The green context is destroyed. False: it is not known. `context` is null when the program never asked
  // for it.
  bool remove(CUgreenCtx green, CUdevice* device, CUcontext* context);
  // Forgets all green contexts of a device and returns their context handles.
  std::vector<CUcontext> remove_all(CUdevice device);
  bool device_of(CUgreenCtx green, CUdevice* device);

  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The context that owns memory allocated while `context` is current.
  CUcontext owner(CUcontext context);

  void forget_after_fork();

 private:
  struct Green {
    CUgreenCtx green;
    CUdevice device;
    CUcontext context = nullptr;
    CUcontext primary = nullptr;
  };

  Lock lock_{Rank::kGreenContexts};
  // Libraries whose destructors run after ours still ask.
  NoDestroy<std::vector<Green>> all_ CUPOOL_GUARDED_BY(lock_);
  std::atomic<bool> any_{false};
};

extern GreenContexts green_contexts;

}  // namespace cupool::hooks
