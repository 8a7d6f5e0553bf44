// See permission.hpp.
#include "hooks/state/permission.hpp"

#include "base/reentry.hpp"
#include "cuda/real.hpp"

namespace cupool::hooks {

constinit thread_local bool detail::is_permitted = false;

CUresult ask_context() {
  const Reentry guard;
  size_t free = 0;
  size_t total = 0;
  return cuda::real.cuMemGetInfo_v2(&free, &total);
}

bool detail::ask_permission() {
  is_permitted = ask_context() != CUDA_ERROR_NOT_PERMITTED;
  return is_permitted;
}

}  // namespace cupool::hooks
