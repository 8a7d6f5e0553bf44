// See cuda_driver.hpp.
#include "cuda/cuda_driver.hpp"

#include "base/own_call.hpp"
#include "cuda/live.hpp"
#include "cuda/mapping.hpp"
#include "cuda/real.hpp"
#include "cuda/relaxed_capture.hpp"

namespace cupool::cuda {

using driver::Status;

namespace {

CUcontext native(driver::Context context) { return reinterpret_cast<CUcontext>(context); }
CUevent native(driver::Event event) { return reinterpret_cast<CUevent>(event); }
CUstream native(driver::Stream stream) { return reinterpret_cast<CUstream>(stream); }

// Makes a context current for one call, if it is not already.
template <typename Call>
Status within(driver::Context context, Call&& call) {
  const OwnCall guard;
  CUcontext current = nullptr;
  real.cuCtxGetCurrent(&current);
  if (current == native(context)) return call();
  if (const CUresult pushed = real.cuCtxPushCurrent_v2(native(context)); pushed != CUDA_SUCCESS)
    return pushed;
  const Status status = call();
  real.cuCtxPopCurrent_v2(&current);
  return status;
}

}  // namespace

Status CudaDriver::allocate(size_t bytes, driver::Address* out) {
  const OwnCall guard;
  CUdeviceptr start = 0;
  const Status status = real.cuMemAlloc_v2(&start, bytes);
  *out = start;
  return status;
}

Status ManagedDriver::allocate(size_t bytes, driver::Address* out) {
  const OwnCall guard;
  CUdeviceptr start = 0;
  const Status status = real.cuMemAllocManaged(&start, bytes, flags_);
  *out = start;
  return status;
}

Status CudaDriver::release(driver::Address start) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuMemFree_v2(start);
}

Status CudaDriver::release_in(driver::Context context, driver::Address start) {
  return within(context, [&] {
    const RelaxedCapture relaxed;
    return real.cuMemFree_v2(start);
  });
}

Status CudaDriver::create_stream(driver::Context context, driver::Stream* out) {
  if (!real.cuMemFreeAsync.present()) return driver::kNotSupported;
  return within(
      context, [&] { return real.cuStreamCreate(reinterpret_cast<CUstream*>(out), CU_STREAM_NON_BLOCKING); });
}

// The free is done when the stream comes to it, which is at once, but the memory is the device's again only
// after a wait for the stream.
Status CudaDriver::release_on(driver::Context context, driver::Stream stream, driver::Address start) {
  return within(context, [&] {
    const RelaxedCapture relaxed;
    const CUresult result = real.cuMemFreeAsync(start, native(stream));
    if (result == CUDA_SUCCESS) real.cuStreamSynchronize(native(stream));
    return result;
  });
}

Status CudaDriver::memory(size_t* free, size_t* total) {
  const OwnCall guard;
  return real.cuMemGetInfo_v2(free, total);
}

// What is free by the driver's own account is not all that it can give: it takes from its pools, too, and
// moves managed memory out of the way. So it is asked for the memory itself, in the one form that goes back
// without a wait. Any other answer than a refusal tells nothing.
bool CudaDriver::might_give(int device, uint64_t bytes) {
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

Status CudaDriver::device(int* number) {
  const OwnCall guard;
  return real.cuCtxGetDevice(number);
}

bool CudaDriver::has_context_events() const {
  return real.cuCtxRecordEvent.present() && real.cuCtxWaitEvent.present();
}

Status CudaDriver::create_event(driver::Context context, driver::Event* out) {
  return within(context,
                [&] { return real.cuEventCreate(reinterpret_cast<CUevent*>(out), CU_EVENT_DISABLE_TIMING); });
}

Status CudaDriver::record(driver::Context context, driver::Event event) {
  const OwnCall guard;
  return real.cuCtxRecordEvent(native(context), native(event));
}

Status CudaDriver::record_on(driver::Stream stream, driver::Event event) {
  const OwnCall guard;
  return real.cuEventRecord(native(event), native(stream));
}

Status CudaDriver::query(driver::Event event) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuEventQuery(native(event));
}

Status CudaDriver::order_after(driver::Context context, driver::Event event) {
  const OwnCall guard;
  return real.cuCtxWaitEvent(native(context), native(event));
}

Status CudaDriver::wait_on(driver::Stream stream, driver::Event event) {
  const OwnCall guard;
  return real.cuStreamWaitEvent(native(stream), native(event), 0);
}

bool CudaDriver::is_capturing(driver::Stream stream) {
  const OwnCall guard;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real.cuStreamIsCapturing(native(stream), &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool CudaDriver::may_be_capturing() { return live.may_be_capturing(); }

Status CudaDriver::synchronize(driver::Context context) {
  return within(context, [] { return real.cuCtxSynchronize(); });
}

}  // namespace cupool::cuda
