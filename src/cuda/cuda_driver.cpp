// See cuda_driver.hpp.
#include "cuda/cuda_driver.hpp"

#include "base/own_call.hpp"
#include "cuda/live.hpp"
#include "cuda/mapping.hpp"
#include "cuda/real.hpp"
#include "cuda/relaxed_capture.hpp"
#include "cuda/within.hpp"

namespace cupool::cuda {

using driver::Status;

namespace {

CUcontext native(driver::Context context) { return reinterpret_cast<CUcontext>(context); }
CUevent native(driver::Event event) { return reinterpret_cast<CUevent>(event); }
CUstream native(driver::Stream stream) { return reinterpret_cast<CUstream>(stream); }

}  // namespace

Status CudaDriver::create_stream(driver::Context context, driver::Stream* out) {
  if (!real.cuMemFreeAsync.present()) return driver::kNotSupported;
  return within(
      context, [&] { return real.cuStreamCreate(reinterpret_cast<CUstream*>(out), CU_STREAM_NON_BLOCKING); });
}

Status CudaDriver::memory(size_t* free, size_t* total) {
  const OwnCall guard;
  return real.cuMemGetInfo_v2(free, total);
}

Status CudaDriver::device(int* number) {
  const OwnCall guard;
  return real.cuCtxGetDevice(number);
}

bool CudaDriver::can_map(int device) { return CudaMapping().can_map(device); }

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
