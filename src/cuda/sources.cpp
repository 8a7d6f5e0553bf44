// See sources.hpp.
#include "cuda/sources.hpp"

#include "base/clock.hpp"
#include "base/own_call.hpp"
#include "base/preserve_errno.hpp"
#include "cuda/mapping.hpp"
#include "cuda/real.hpp"
#include "cuda/relaxed_capture.hpp"
#include "cuda/within.hpp"

namespace cupool::cuda {

using driver::Status;

Status DeviceMemory::allocate(size_t bytes, driver::Address* out) {
  const OwnCall guard;
  CUdeviceptr start = 0;
  const Status status = real.cuMemAlloc_v2(&start, bytes);
  *out = start;
  return status;
}

Status ManagedMemory::allocate(size_t bytes, driver::Address* out) {
  const OwnCall guard;
  CUdeviceptr start = 0;
  const Status status = real.cuMemAllocManaged(&start, bytes, flags_);
  *out = start;
  return status;
}

Status DeviceMemory::release(driver::Address start) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuMemFree_v2(start);
}

Status DeviceMemory::release_in(driver::Context context, driver::Address start) {
  return within(context, [&] {
    const RelaxedCapture relaxed;
    return real.cuMemFree_v2(start);
  });
}

namespace {

// Whether a stream comes to its end, within a quarter of a second.
bool ends_soon(CUstream stream) {
  constexpr uint64_t kMostNs = 250'000'000;
  constexpr uint64_t kPauseNs = 20'000;
  const PreserveErrno preserve;
  const uint64_t before = now_ns();
  while (real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    if (now_ns() - before > kMostNs) return false;
    sleep_for(kPauseNs);
  }
  return true;
}

}  // namespace

// The free is done when the stream comes to it, which is at once, but the memory is the device's again only
// after a wait for the stream. All work of the context may have been made to wait in this very moment
// (order/), for work that waits for the thread that asks: so the wait is brief.
Status DeviceMemory::release_on(driver::Context context, driver::Stream stream, driver::Address start) {
  const auto native = reinterpret_cast<CUstream>(stream);
  return within(context, [&] {
    const RelaxedCapture relaxed;
    const CUresult result = real.cuMemFreeAsync(start, native);
    if (result == CUDA_SUCCESS && ends_soon(native)) real.cuStreamSynchronize(native);
    return result;
  });
}

// What is free by the driver's own account is not all that it can give: it takes from its pools, too, and
// moves managed memory out of the way. So it is asked for the memory itself, in the one form that goes back
// without a wait. Any other answer than a refusal tells nothing.
bool DeviceMemory::might_give(int device, uint64_t bytes) {
  const OwnCall guard;
  const uint64_t whole = bytes / driver::kMappingStep * driver::kMappingStep;
  size_t free = 0;
  size_t total = ~size_t{0};
  CUdevice current = 0;
  if (real.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device) real.cuMemGetInfo_v2(&free, &total);
  if (whole <= free || !real.cuMemCreate.present()) return true;
  if (whole > total) return false;
  const CUmemAllocationProp properties = properties_of(device);
  CUmemGenericAllocationHandle memory = 0;
  const CUresult result = real.cuMemCreate(&memory, whole, &properties, 0);
  if (result == CUDA_SUCCESS) real.cuMemRelease(memory);
  return result != CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace cupool::cuda
