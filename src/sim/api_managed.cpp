// Entry points for managed memory: allocation, and hints, which are accepted and change nothing.
#include <cuda.h>

#include "sim/capture.hpp"
#include "sim/entry.hpp"
#include "sim/lives.hpp"
#include "sim/managed.hpp"

using namespace cupool::sim;

namespace {

bool holds_managed(CUdeviceptr p, size_t bytes) {
  const Allocation* const found = state().allocations.holding(p);
  return found != nullptr && found->kind == MemoryKind::kManaged && state().allocations.holds(p, bytes);
}

CUresult prefetch(Site& site, CUdeviceptr p, size_t bytes, CUstream handle) {
  return on_stream(site, handle, [&](const StreamPtr& stream) -> CUresult {
    if (bytes == 0 || !holds_managed(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto work = std::make_shared<Work>();
    work->what = "prefetch";
    work->touches.push_back(Span{p, p + bytes});
    return submit(stream, std::move(work));
  });
}

CUresult advise(Site& site, CUdeviceptr p, size_t bytes) {
  return in_context(site, [&](Context&) -> CUresult {
    return bytes != 0 && holds_managed(p, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  return in_context(SIM_SITE(cuMemAllocManaged), [&](Context& context) -> CUresult {
    ++state().counters.alloc_calls;
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
    Allocation* const made = state().allocations.create(context, bytes, MemoryKind::kManaged);
    if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    show_managed(*made);
    own_life_begins(*made, "cuMemAllocManaged");
    *out = made->base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice, CUstream stream) {
  return prefetch(SIM_SITE(cuMemPrefetchAsync), p, bytes, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t bytes, CUmemLocation, unsigned int, CUstream stream) {
  return prefetch(SIM_SITE(cuMemPrefetchAsync_v2), p, bytes, stream);
}

CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise, CUdevice) {
  return advise(SIM_SITE(cuMemAdvise), p, bytes);
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t bytes, CUmem_advise, CUmemLocation) {
  return advise(SIM_SITE(cuMemAdvise_v2), p, bytes);
}

}  // extern "C"
