// The observer: preloaded in front of whatever pools memory, it tells the simulated driver of every
// allocation, free and wait that the application makes. An end is told before the free goes down and taken
// back if it fails; a beginning after the allocation returned; a call as long as it lasts. It changes no
// argument and no result, and holds no lock.
#include <cuda.h>

#include "sim/observer/next.hpp"

using namespace cupool::observer;

namespace {

// A call of the application, by the name it has without its per-thread form; `key` tells it from another of
// that name which the library behind us makes meanwhile.
template <typename Key, typename Call>
CUresult told(const char* name, Key key, Call&& call) {
  life_calls().call_begins(name, (unsigned long long)key);
  const CUresult result = call();
  life_calls().call_ends(static_cast<int>(result));
  return result;
}

template <typename Call>
CUresult begin(const char* name, const CUdeviceptr* p, unsigned long long bytes, const char* kind,
               Call&& call) {
  const CUresult result = told(name, 0, call);
  if (result == CUDA_SUCCESS && p != nullptr) life_calls().begin(*p, bytes, kind);
  return result;
}

template <typename Free, typename... Rest>
CUresult end(const char* name, Free* free_memory, CUdeviceptr p, Rest... rest) {
  return told(name, p, [&] {
    const bool lived = p != 0 && life_calls().end(p) != 0;
    const CUresult result = free_memory(p, rest...);
    if (lived && result != CUDA_SUCCESS) life_calls().goes_on(p);
    return result;
  });
}

}  // namespace

// A call that is told and otherwise passed on.
#define OBSERVER_TOLD(symbol, name, key, parameters, arguments)            \
  CUresult symbol parameters {                                             \
    return told(name, key, [&] { return CUPOOL_NEXT(symbol) arguments; }); \
  }

extern "C" {

// What the simulated driver looks for.
extern const int cupool_observer_present;
const int cupool_observer_present = 1;

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  return begin("cuMemAlloc_v2", p, bytes, "cuMemAlloc", [&] { return CUPOOL_NEXT(cuMemAlloc_v2)(p, bytes); });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* p, size_t* pitch, size_t width, size_t height,
                            unsigned int element) {
  const CUresult result = told("cuMemAllocPitch_v2", 0, [&] {
    return CUPOOL_NEXT(cuMemAllocPitch_v2)(p, pitch, width, height, element);
  });
  if (result == CUDA_SUCCESS) life_calls().begin(*p, *pitch * height, "cuMemAllocPitch");
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes, unsigned int flags) {
  return begin("cuMemAllocManaged", p, bytes, "cuMemAllocManaged",
               [&] { return CUPOOL_NEXT(cuMemAllocManaged)(p, bytes, flags); });
}

CUresult cuMemAllocAsync(CUdeviceptr* p, size_t bytes, CUstream stream) {
  return begin("cuMemAllocAsync", p, bytes, "cuMemAllocAsync",
               [&] { return CUPOOL_NEXT(cuMemAllocAsync)(p, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* p, size_t bytes, CUstream stream) {
  return begin("cuMemAllocAsync", p, bytes, "cuMemAllocAsync",
               [&] { return CUPOOL_NEXT(cuMemAllocAsync_ptsz)(p, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* p, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return begin("cuMemAllocFromPoolAsync", p, bytes, "cuMemAllocFromPoolAsync",
               [&] { return CUPOOL_NEXT(cuMemAllocFromPoolAsync)(p, bytes, pool, stream); });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* p, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return begin("cuMemAllocFromPoolAsync", p, bytes, "cuMemAllocFromPoolAsync",
               [&] { return CUPOOL_NEXT(cuMemAllocFromPoolAsync_ptsz)(p, bytes, pool, stream); });
}

CUresult cuMemFree_v2(CUdeviceptr p) { return end("cuMemFree_v2", CUPOOL_NEXT(cuMemFree_v2), p); }

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream) {
  return end("cuMemFreeAsync", CUPOOL_NEXT(cuMemFreeAsync), p, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream) {
  return end("cuMemFreeAsync", CUPOOL_NEXT(cuMemFreeAsync_ptsz), p, stream);
}

OBSERVER_TOLD(cuMemFreeHost, "cuMemFreeHost", p, (void* p), (p))
OBSERVER_TOLD(cuCtxSynchronize, "cuCtxSynchronize", 0, (), ())
OBSERVER_TOLD(cuCtxWaitEvent, "cuCtxWaitEvent", event, (CUcontext context, CUevent event), (context, event))
OBSERVER_TOLD(cuCtxDestroy_v2, "cuCtxDestroy_v2", context, (CUcontext context), (context))
OBSERVER_TOLD(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2", device, (CUdevice device),
              (device))
OBSERVER_TOLD(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset_v2", device, (CUdevice device), (device))
OBSERVER_TOLD(cuStreamSynchronize, "cuStreamSynchronize", stream, (CUstream stream), (stream))
OBSERVER_TOLD(cuStreamSynchronize_ptsz, "cuStreamSynchronize", stream, (CUstream stream), (stream))
OBSERVER_TOLD(cuStreamWaitEvent, "cuStreamWaitEvent", event, (CUstream stream, CUevent event, unsigned flags),
              (stream, event, flags))
OBSERVER_TOLD(cuStreamWaitEvent_ptsz, "cuStreamWaitEvent", event,
              (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
OBSERVER_TOLD(cuEventSynchronize, "cuEventSynchronize", event, (CUevent event), (event))
OBSERVER_TOLD(cuEventRecord, "cuEventRecord", event, (CUevent event, CUstream stream), (event, stream))
OBSERVER_TOLD(cuEventRecord_ptsz, "cuEventRecord", event, (CUevent event, CUstream stream), (event, stream))
OBSERVER_TOLD(cuCtxRecordEvent, "cuCtxRecordEvent", event, (CUcontext context, CUevent event),
              (context, event))
OBSERVER_TOLD(cuStreamCreate, "cuStreamCreate", 0, (CUstream * out, unsigned flags), (out, flags))
OBSERVER_TOLD(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 0,
              (CUstream * out, unsigned flags, int priority), (out, flags, priority))
OBSERVER_TOLD(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", p, (CUdeviceptr p), (p))
OBSERVER_TOLD(cuIpcGetMemHandle, "cuIpcGetMemHandle", p, (CUipcMemHandle * out, CUdeviceptr p), (out, p))
OBSERVER_TOLD(cuMemGetInfo_v2, "cuMemGetInfo_v2", 0, (size_t * free_bytes, size_t* total),
              (free_bytes, total))
OBSERVER_TOLD(cuMemUnmap, "cuMemUnmap", p, (CUdeviceptr p, size_t bytes), (p, bytes))
OBSERVER_TOLD(cuStreamDestroy_v2, "cuStreamDestroy_v2", stream, (CUstream stream), (stream))
OBSERVER_TOLD(cuStreamBeginCapture_v2, "cuStreamBeginCapture_v2", stream,
              (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
OBSERVER_TOLD(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture_v2", stream,
              (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
OBSERVER_TOLD(cuLaunchKernel, "cuLaunchKernel", 0,
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
               unsigned shared, CUstream stream, void** parameters, void** extra),
              (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
OBSERVER_TOLD(cuLaunchKernel_ptsz, "cuLaunchKernel", 0,
              (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
               unsigned shared, CUstream stream, void** parameters, void** extra),
              (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))

CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  const CUresult result = CUPOOL_NEXT(cuGetProcAddress)(name, out, version, flags);
  if (result == CUDA_SUCCESS) *out = through_proc_address(name, version, flags, *out);
  return result;
}

CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const CUresult result = CUPOOL_NEXT(cuGetProcAddress_v2)(name, out, version, flags, status);
  if (result == CUDA_SUCCESS) *out = through_proc_address(name, version, flags, *out);
  return result;
}

}  // extern "C"
