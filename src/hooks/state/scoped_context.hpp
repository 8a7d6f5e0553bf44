// Makes a context current for a scope, if it is not already: for calls of ours that need one. By the driver's
// own handle, since a green context is not the one that owns its memory.
#pragma once

#include "base/own_call.hpp"
#include "cuda/real.hpp"

namespace cupool::hooks {

class ScopedContext {
 public:
  explicit ScopedContext(CUcontext context) {
    const OwnCall guard;
    CUcontext current = nullptr;
    pushes_ = cuda::real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context;
    pushes_ = pushes_ && cuda::real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  }
  ~ScopedContext() {
    const OwnCall guard;
    CUcontext other = nullptr;
    if (pushes_) cuda::real.cuCtxPopCurrent_v2(&other);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  bool pushes_ = false;
};

}  // namespace cupool::hooks
