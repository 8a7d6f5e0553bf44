// A context is made current for one call of ours, under the re-entry guard. No state.
#pragma once

#include "base/own_call.hpp"
#include "cuda/real.hpp"
#include "driver/types.hpp"

namespace cupool::cuda {

// If it is not current already.
template <typename Call>
driver::Status within(driver::Context context, Call&& call) {
  const auto wanted = reinterpret_cast<CUcontext>(context);
  const OwnCall guard;
  CUcontext current = nullptr;
  real.cuCtxGetCurrent(&current);
  if (current == wanted) return call();
  if (const CUresult pushed = real.cuCtxPushCurrent_v2(wanted); pushed != CUDA_SUCCESS) return pushed;
  const driver::Status status = call();
  real.cuCtxPopCurrent_v2(&current);
  return status;
}

}  // namespace cupool::cuda
