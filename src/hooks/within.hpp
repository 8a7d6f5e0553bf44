// Makes a context current for a scope, if it is not already: for calls of ours that need one.
#pragma once

#include "base/own_call.hpp"
#include "cuda/real.hpp"
#include "hooks/current.hpp"

namespace cupool::hooks {

class Within {
 public:
  explicit Within(driver::Context context) : pushes_(current_context() != context) {
    const OwnCall guard;
    if (pushes_) cuda::real.cuCtxPushCurrent_v2(reinterpret_cast<CUcontext>(context));
  }
  ~Within() {
    const OwnCall guard;
    CUcontext before = nullptr;
    if (pushes_) cuda::real.cuCtxPopCurrent_v2(&before);
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  const bool pushes_;
};

}  // namespace cupool::hooks
