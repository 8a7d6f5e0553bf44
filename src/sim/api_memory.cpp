// Entry points that give, take and describe device memory. cuMemFree waits for everything in the context, as
// the real one was seen to; nothing else here waits. Without an observer the driver's own allocations are the
// lives the oracle watches; with one, the observer says what lives.
#include <cuda.h>

#include "sim/capture.hpp"
#include "sim/entry.hpp"
#include "sim/lives.hpp"
#include "sim/mapped_memory.hpp"

using namespace cupool::sim;

namespace {

CUresult allocate(Context& context, CUdeviceptr* out, std::uint64_t bytes, const char* call) {
  ++state().counters.alloc_calls;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult allowed = check_unsafe_call();
  if (allowed != CUDA_SUCCESS) return allowed;
  collect_lingering_chunks();
  const Allocation* const made = state().allocations.create(context, bytes, MemoryKind::kDevice);
  if (made == nullptr) {
    *out = 0;
    note_refusal();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  own_life_begins(*made, call);
  *out = made->base;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return in_context(SIM_SITE(cuMemAlloc_v2), [&](Context& context) {
    stand_beside_launches(context);
    return allocate(context, out, bytes, "cuMemAlloc");
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                            unsigned int element) {
  return in_context(SIM_SITE(cuMemAllocPitch_v2), [&](Context& context) -> CUresult {
    if (pitch == nullptr || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
      ++state().counters.alloc_calls;
      if (pitch != nullptr) *pitch = 0;
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t row = (width + kSmallUnit - 1) / kSmallUnit * kSmallUnit;
    std::uint64_t bytes = 0;
    if (row < width || __builtin_mul_overflow(row, height, &bytes)) bytes = UINT64_MAX;
    const CUresult result = allocate(context, out, bytes, "cuMemAllocPitch");
    *pitch = result == CUDA_SUCCESS ? row : 0;
    return result;
  });
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  const Asked asked("cuMemFree_v2", key_of(p));
  return in_driver(SIM_SITE(cuMemFree_v2), [&]() -> CUresult {
    // None is needed, but one that is broken or gone is in the way.
    ContextPtr context;
    const CUresult found = current_context(context);
    if (found != CUDA_SUCCESS && found != CUDA_ERROR_INVALID_CONTEXT) return found;
    tick();
    if (context != nullptr && context->error != CUDA_SUCCESS) return context->error;
    State& s = state();
    ++s.counters.free_calls;
    if (p == 0) return CUDA_SUCCESS;
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
    const Allocation* const known = s.allocations.exact(p);
    if (known == nullptr || known->is_leaving) return CUDA_ERROR_INVALID_VALUE;
    const MemoryKind kind = known->kind;
    if (kind != MemoryKind::kDevice && kind != MemoryKind::kManaged && kind != MemoryKind::kPooled) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const ContextPtr owner = s.context_by_id(known->context_id);
    if (owner != nullptr) complete(context_target(*owner));
    // Waiting may have let another thread in: only one of two frees wins.
    const Allocation* const still = s.allocations.exact(p);
    if (still == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (owner != nullptr && owner->error != CUDA_SUCCESS) return owner->error;
    own_life_ends(*still, "cuMemFree");
    free_pooled_or_owned(p);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return in_context(SIM_SITE(cuMemGetInfo_v2), [&](Context& context) -> CUresult {
    collect_lingering_chunks();
    const Arena& arena = state().arena(context.device);
    if (free_bytes != nullptr) *free_bytes = arena.capacity() - arena.used();
    if (total != nullptr) *total = arena.capacity();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
  // Asked for nothing it says yes, whatever the pointer; what it does not know it answers with zeros.
  if (base != nullptr) *base = 0;
  if (size != nullptr) *size = 0;
  return in_context(SIM_SITE(cuMemGetAddressRange_v2), [&](Context&) -> CUresult {
    if (base == nullptr && size == nullptr) return CUDA_SUCCESS;
    const Allocation* const found = state().allocations.holding(p);
    if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = found->base;
    if (size != nullptr) *size = found->size;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
