// The observer: preloaded in front of whatever pools memory, it tells the simulated driver of every
// allocation and free that the application makes. An end is told before the free goes down and taken back if
// it fails; a beginning after the allocation returned. It changes no argument and no result, and holds no
// lock.
#include <cuda.h>

#include "sim/observer/next.hpp"

using namespace cupool::observer;

namespace {

CUresult begin(CUresult result, const CUdeviceptr* p, unsigned long long bytes, const char* kind) {
  if (result == CUDA_SUCCESS && p != nullptr) life_calls().begin(*p, bytes, kind);
  return result;
}

template <typename Free, typename... Rest>
CUresult end(Free* free_memory, CUdeviceptr p, Rest... rest) {
  const bool lived = p != 0 && life_calls().end(p) != 0;
  const CUresult result = free_memory(p, rest...);
  if (lived && result != CUDA_SUCCESS) life_calls().goes_on(p);
  return result;
}

}  // namespace

extern "C" {

// What the simulated driver looks for.
extern const int cupool_observer_present;
const int cupool_observer_present = 1;

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  return begin(CUPOOL_NEXT(cuMemAlloc_v2)(p, bytes), p, bytes, "cuMemAlloc");
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* p, size_t* pitch, size_t width, size_t height,
                            unsigned int element) {
  const CUresult result = CUPOOL_NEXT(cuMemAllocPitch_v2)(p, pitch, width, height, element);
  return begin(result, p, result == CUDA_SUCCESS ? *pitch * height : 0, "cuMemAllocPitch");
}

CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes, unsigned int flags) {
  return begin(CUPOOL_NEXT(cuMemAllocManaged)(p, bytes, flags), p, bytes, "cuMemAllocManaged");
}

CUresult cuMemAllocAsync(CUdeviceptr* p, size_t bytes, CUstream stream) {
  return begin(CUPOOL_NEXT(cuMemAllocAsync)(p, bytes, stream), p, bytes, "cuMemAllocAsync");
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* p, size_t bytes, CUstream stream) {
  return begin(CUPOOL_NEXT(cuMemAllocAsync_ptsz)(p, bytes, stream), p, bytes, "cuMemAllocAsync");
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* p, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return begin(CUPOOL_NEXT(cuMemAllocFromPoolAsync)(p, bytes, pool, stream), p, bytes,
               "cuMemAllocFromPoolAsync");
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* p, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return begin(CUPOOL_NEXT(cuMemAllocFromPoolAsync_ptsz)(p, bytes, pool, stream), p, bytes,
               "cuMemAllocFromPoolAsync");
}

CUresult cuMemFree_v2(CUdeviceptr p) { return end(CUPOOL_NEXT(cuMemFree_v2), p); }

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream) {
  return end(CUPOOL_NEXT(cuMemFreeAsync), p, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream) {
  return end(CUPOOL_NEXT(cuMemFreeAsync_ptsz), p, stream);
}

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
