// Green contexts: parts of a device's primary context. A program makes one current through a context handle
// of its own, but its memory is the primary context's: it outlives the green context, and ends with the
// primary one. So the pool knows that memory by the primary context's handle. The lock is never held across a
// call of the driver.
#pragma once

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "base/no_destroy.hpp"
#include "cuda/cuda_api.hpp"

namespace cupool::hooks {

class Greens {
 public:
  void created(CUgreenCtx green, CUdevice device);
  // The program was given `context` for it; `primary` is its device's.
  void named(CUgreenCtx green, CUcontext context, CUcontext primary);
  // It ends: false when it is not known. `context` is null when the program never asked for it.
  bool remove(CUgreenCtx green, CUdevice* device, CUcontext* context);
  // All contexts of a device's green ones, which are forgotten.
  std::vector<CUcontext> remove_all(CUdevice device);
  bool device_of(CUgreenCtx green, CUdevice* device);

  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Whose memory is allocated while `context` is current.
  CUcontext owner(CUcontext context);

  void forget_after_fork();

 private:
  struct Green {
    CUgreenCtx green;
    CUdevice device;
    CUcontext context = nullptr;
    CUcontext primary = nullptr;
  };

  Lock lock_;
  // Libraries that end after us still ask.
  NoDestroy<std::vector<Green>> all_ CUPOOL_GUARDED_BY(lock_);
  std::atomic<bool> any_{false};
};

extern Greens greens;

}  // namespace cupool::hooks
