// The per-thread-default-stream forms (memory calls): the same call, in which stream 0 means the calling
// thread's own stream. Faults and counts go under the plain name. Nothing else may be decided here.
#include <cuda.h>

#include "sim/entry.hpp"

using cupool::sim::PerThreadScope;

extern "C" {

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* a0, size_t a1, CUstream a2) {
  const PerThreadScope scope;
  return cuMemAllocAsync(a0, a1, a2);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* a0, size_t a1, CUmemoryPool a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemAllocFromPoolAsync(a0, a1, a2, a3);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* a0, CUstream a1) {
  const PerThreadScope scope;
  return cuMemcpy2DAsync_v2(a0, a1);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* a0) {
  const PerThreadScope scope;
  return cuMemcpy2DUnaligned_v2(a0);
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* a0) {
  const PerThreadScope scope;
  return cuMemcpy2D_v2(a0);
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* a0, CUstream a1) {
  const PerThreadScope scope;
  return cuMemcpy3DAsync_v2(a0, a1);
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* a0, CUstream a1) {
  const PerThreadScope scope;
  return cuMemcpy3DPeerAsync(a0, a1);
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* a0) {
  const PerThreadScope scope;
  return cuMemcpy3DPeer(a0);
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* a0) {
  const PerThreadScope scope;
  return cuMemcpy3D_v2(a0);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr a0, CUdeviceptr a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemcpyAsync(a0, a1, a2, a3);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray a0, size_t a1, CUarray a2, size_t a3, size_t a4) {
  const PerThreadScope scope;
  return cuMemcpyAtoA_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr a0, CUarray a1, size_t a2, size_t a3) {
  const PerThreadScope scope;
  return cuMemcpyAtoD_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(void* a0, CUarray a1, size_t a2, size_t a3, CUstream a4) {
  const PerThreadScope scope;
  return cuMemcpyAtoHAsync_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemcpyAtoH_v2_ptds(void* a0, CUarray a1, size_t a2, size_t a3) {
  const PerThreadScope scope;
  return cuMemcpyAtoH_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* a0, CUdeviceptr* a1, size_t* a2, size_t a3,
                                    CUmemcpyAttributes* a4, size_t* a5, size_t a6, CUstream a7) {
  const PerThreadScope scope;
  return cuMemcpyBatchAsync_v2(a0, a1, a2, a3, a4, a5, a6, a7);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray a0, size_t a1, CUdeviceptr a2, size_t a3) {
  const PerThreadScope scope;
  return cuMemcpyDtoA_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr a0, CUdeviceptr a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemcpyDtoDAsync_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr a0, CUdeviceptr a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemcpyDtoD_v2(a0, a1, a2);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* a0, CUdeviceptr a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemcpyDtoHAsync_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyDtoH_v2_ptds(void* a0, CUdeviceptr a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemcpyDtoH_v2(a0, a1, a2);
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray a0, size_t a1, const void* a2, size_t a3, CUstream a4) {
  const PerThreadScope scope;
  return cuMemcpyHtoAAsync_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemcpyHtoA_v2_ptds(CUarray a0, size_t a1, const void* a2, size_t a3) {
  const PerThreadScope scope;
  return cuMemcpyHtoA_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr a0, const void* a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemcpyHtoDAsync_v2(a0, a1, a2, a3);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr a0, const void* a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemcpyHtoD_v2(a0, a1, a2);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr a0, CUcontext a1, CUdeviceptr a2, CUcontext a3, size_t a4,
                                CUstream a5) {
  const PerThreadScope scope;
  return cuMemcpyPeerAsync(a0, a1, a2, a3, a4, a5);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr a0, CUcontext a1, CUdeviceptr a2, CUcontext a3, size_t a4) {
  const PerThreadScope scope;
  return cuMemcpyPeer(a0, a1, a2, a3, a4);
}

CUresult cuMemcpy_ptds(CUdeviceptr a0, CUdeviceptr a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemcpy(a0, a1, a2);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr a0, CUstream a1) {
  const PerThreadScope scope;
  return cuMemFreeAsync(a0, a1);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr a0, size_t a1, CUdevice a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemPrefetchAsync(a0, a1, a2, a3);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr a0, size_t a1, CUmemLocation a2, unsigned int a3,
                                    CUstream a4) {
  const PerThreadScope scope;
  return cuMemPrefetchAsync_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr a0, unsigned short a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemsetD16Async(a0, a1, a2, a3);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr a0, unsigned short a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemsetD16_v2(a0, a1, a2);
}

CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4,
                                 CUstream a5) {
  const PerThreadScope scope;
  return cuMemsetD2D16Async(a0, a1, a2, a3, a4, a5);
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4) {
  const PerThreadScope scope;
  return cuMemsetD2D16_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr a0, size_t a1, unsigned int a2, size_t a3, size_t a4,
                                 CUstream a5) {
  const PerThreadScope scope;
  return cuMemsetD2D32Async(a0, a1, a2, a3, a4, a5);
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr a0, size_t a1, unsigned int a2, size_t a3, size_t a4) {
  const PerThreadScope scope;
  return cuMemsetD2D32_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4,
                                CUstream a5) {
  const PerThreadScope scope;
  return cuMemsetD2D8Async(a0, a1, a2, a3, a4, a5);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4) {
  const PerThreadScope scope;
  return cuMemsetD2D8_v2(a0, a1, a2, a3, a4);
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr a0, unsigned int a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemsetD32Async(a0, a1, a2, a3);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr a0, unsigned int a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemsetD32_v2(a0, a1, a2);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr a0, unsigned char a1, size_t a2, CUstream a3) {
  const PerThreadScope scope;
  return cuMemsetD8Async(a0, a1, a2, a3);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr a0, unsigned char a1, size_t a2) {
  const PerThreadScope scope;
  return cuMemsetD8_v2(a0, a1, a2);
}

}  // extern "C"
