// See permission.hpp.
#include "hooks/permission.hpp"

#include "base/reentry.hpp"
#include "cuda/real.hpp"

namespace cupool::hooks {

constinit thread_local bool detail::is_permitted = false;

// A query that neither waits nor disturbs a capture.
bool detail::ask_permission() {
  const Reentry guard;
  size_t free = 0;
  size_t total = 0;
  is_permitted = cuda::real.cuMemGetInfo_v2(&free, &total) != CUDA_ERROR_NOT_PERMITTED;
  return is_permitted;
}

}  // namespace cupool::hooks
