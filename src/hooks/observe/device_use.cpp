// A listener that asks the driver after each allocation how much of the device is in use, by all processes
// (CUPOOL_WATCH_DEVICE), and notes the most in the ledger, where `cupool compare` reads it. It works the same
// with and without the pool. Owns nothing, holds no lock.
#include "base/own_call.hpp"
#include "config/options.hpp"
#include "cuda/real.hpp"
#include "cuda/relaxed_capture.hpp"
#include "hooks/observe/observer.hpp"
#include "report/ledger.hpp"

namespace cupool::hooks::observe {

extern const Listener device_use_listener;

namespace {

bool is_wanted() { return config::options().watch_device; }

void look() {
  const OwnCall own;
  const cuda::RelaxedCapture allowed;
  CUdevice device = 0;
  size_t free = 0;
  size_t total = 0;
  if (cuda::real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      cuda::real.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS || free > total)
    return;
  report::note_device_use(device, total - free);
}

void allocated(const Allocated&) { look(); }

// Memory without an address.
void forwarded(const Forwarded& what) {
  switch (what.call) {
    case cuda::Call::cuMemCreate:
    case cuda::Call::cuArrayCreate_v2:
    case cuda::Call::cuArray3DCreate_v2:
    case cuda::Call::cuMipmappedArrayCreate:
      if (what.result == CUDA_SUCCESS) look();
      break;
    default:
      break;
  }
}

}  // namespace

constinit const Listener device_use_listener{
    .is_wanted = is_wanted, .allocated = allocated, .forwarded = forwarded};

}  // namespace cupool::hooks::observe
