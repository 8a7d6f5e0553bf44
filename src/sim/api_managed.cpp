// Entry points for managed memory: allocation, and advice, which is remembered and otherwise changes nothing.
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

// As the attributes tell it afterwards: the host has the number -1.
CUmemLocation told(CUmemLocation where) {
  if (where.type == CU_MEM_LOCATION_TYPE_HOST) where.id = CU_DEVICE_CPU;
  return where;
}

CUmemLocation of_device(CUdevice device) {
  return {device >= 0 ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST, device};
}

CUresult prefetch(Site& site, CUdeviceptr p, size_t bytes, CUmemLocation where, CUstream handle) {
  return on_stream(site, handle, [&](const StreamPtr& stream) -> CUresult {
    if (bytes == 0 || !holds_managed(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
    state().allocations.holding(p)->advice.prefetched = told(where);
    auto work = std::make_shared<Work>();
    work->what = "prefetch";
    work->touches.push_back(Span{p, p + bytes});
    return submit(stream, std::move(work));
  });
}

CUresult advise(Site& site, CUdeviceptr p, size_t bytes, CUmem_advise what, CUmemLocation where) {
  return in_context(site, [&](Context&) -> CUresult {
    if (bytes == 0 || !holds_managed(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
    Advice& advice = state().allocations.holding(p)->advice;
    switch (what) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        advice.read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return CUDA_SUCCESS;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        advice.preferred = what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? told(where) : Advice{}.preferred;
        return CUDA_SUCCESS;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        if (where.type == CU_MEM_LOCATION_TYPE_DEVICE)
          advice.accessed_by_device = what == CU_MEM_ADVISE_SET_ACCESSED_BY;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult answer(CUmem_range_attribute which, const Advice& advice, int* out) {
  switch (which) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *out = advice.read_mostly ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *out = advice.preferred.id;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *out = static_cast<int>(advice.preferred.type);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *out = advice.prefetched.id;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *out = static_cast<int>(advice.prefetched.type);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  const auto give = [&](Context& context) -> CUresult {
    ++state().counters.alloc_calls;
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
    Allocation* const made = state().allocations.create(context, bytes, MemoryKind::kManaged);
    if (made == nullptr) {
      note_refusal();
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->flags = flags;
    show_managed(*made);
    own_life_begins(*made, "cuMemAllocManaged");
    *out = made->base;
    return CUDA_SUCCESS;
  };
  const CUresult result = in_context(SIM_SITE(cuMemAllocManaged), give);
  // As the real one does in a context that has failed.
  if (result != CUDA_SUCCESS && out != nullptr) *out = 0;
  return result;
}

CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream) {
  return prefetch(SIM_SITE(cuMemPrefetchAsync), p, bytes, of_device(device), stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t bytes, CUmemLocation where, unsigned int,
                               CUstream stream) {
  return prefetch(SIM_SITE(cuMemPrefetchAsync_v2), p, bytes, where, stream);
}

CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise what, CUdevice device) {
  return advise(SIM_SITE(cuMemAdvise), p, bytes, what, of_device(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t bytes, CUmem_advise what, CUmemLocation where) {
  return advise(SIM_SITE(cuMemAdvise_v2), p, bytes, what, where);
}

CUresult cuMemRangeGetAttribute(void* out, size_t size, CUmem_range_attribute which, CUdeviceptr p,
                                size_t bytes) {
  return in_context(SIM_SITE(cuMemRangeGetAttribute), [&](Context&) -> CUresult {
    if (out == nullptr || size < sizeof(int) || bytes == 0 || !holds_managed(p, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    const Advice& advice = state().allocations.holding(p)->advice;
    int* const words = static_cast<int*>(out);
    if (which != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) return answer(which, advice, words);
    for (size_t i = 0; i < size / sizeof(int); ++i) words[i] = CU_DEVICE_INVALID;
    if (advice.accessed_by_device) words[0] = state().allocations.holding(p)->device;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
