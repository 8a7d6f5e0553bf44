// Managed memory: its allocation, and the calls that move or advise its pages and so leave a mark on a block.
#include "hooks/forward.hpp"
#include "hooks/submit.hpp"

using cupool::cuda::real;
using cupool::hooks::DefaultStream;
using cupool::hooks::forward;
using cupool::hooks::named;
using cupool::hooks::submit;
using cupool::stats::Counter;

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  return forward(Counter::managed_allocations, real.cuMemAllocManaged, pointer, bytes, flags);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
  return forward(real.cuMemAdvise, pointer, bytes, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return forward(real.cuMemAdvise_v2, pointer, bytes, advice, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream) {
  return submit(named(stream, DefaultStream::kLegacy),
                [&] { return real.cuMemPrefetchAsync(pointer, bytes, device, stream); });
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream) {
  return submit(named(stream, DefaultStream::kPerThread),
                [&] { return real.cuMemPrefetchAsync_ptsz(pointer, bytes, device, stream); });
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                               CUstream stream) {
  return submit(named(stream, DefaultStream::kLegacy),
                [&] { return real.cuMemPrefetchAsync_v2(pointer, bytes, location, flags, stream); });
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                                    CUstream stream) {
  return submit(named(stream, DefaultStream::kPerThread),
                [&] { return real.cuMemPrefetchAsync_v2_ptsz(pointer, bytes, location, flags, stream); });
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
  return submit(named(stream, DefaultStream::kLegacy),
                [&] { return real.cuStreamAttachMemAsync(stream, pointer, bytes, flags); });
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
  return submit(named(stream, DefaultStream::kPerThread),
                [&] { return real.cuStreamAttachMemAsync_ptsz(stream, pointer, bytes, flags); });
}
