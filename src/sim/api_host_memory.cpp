// Entry points for host memory the device can reach: pinned by the driver, or registered by the program.
// It lies in ordinary memory and has one address for both sides.
#include <cuda.h>
#include <sys/mman.h>

#include "sim/capture.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

std::size_t mapped_bytes(std::size_t bytes) { return (bytes + 65535) / 65536 * 65536; }

CUresult allocate(Site& site, void** out, size_t bytes, unsigned flags) {
  return in_context(site, [&](Context& context) -> CUresult {
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
    if (bytes > (1ull << 46)) return CUDA_ERROR_OUT_OF_MEMORY;
    void* const memory =
        mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation made;
    made.base = reinterpret_cast<CUdeviceptr>(memory);
    made.size = bytes;
    made.kind = MemoryKind::kPinned;
    made.context_id = context.id;
    made.context = context.handle;
    made.device = context.device;
    made.flags = flags;
    made.host = memory;
    state().allocations.adopt(made);
    *out = memory;
    return CUDA_SUCCESS;
  });
}

Allocation* host_memory_at(const void* p) {
  Allocation* const found = state().allocations.holding(reinterpret_cast<CUdeviceptr>(p));
  return found != nullptr && found->host != nullptr ? found : nullptr;
}

bool is_reached_by_host(const Allocation& a) {
  return a.kind == MemoryKind::kManaged || a.kind == MemoryKind::kMapped;
}

CUresult register_memory(Site& site, void* p, size_t bytes, unsigned flags) {
  return in_context(site, [&](Context& context) -> CUresult {
    if (p == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (host_memory_at(p) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Allocation made;
    made.base = reinterpret_cast<CUdeviceptr>(p);
    made.size = bytes;
    made.kind = MemoryKind::kRegistered;
    made.context_id = context.id;
    made.context = context.handle;
    made.device = context.device;
    made.flags = flags;
    made.host = p;
    state().allocations.adopt(made);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return allocate(SIM_SITE(cuMemHostAlloc), out, bytes, flags);
}

CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return allocate(SIM_SITE(cuMemAllocHost_v2), out, bytes, 0);
}

CUresult cuMemFreeHost(void* p) {
  const Asked asked("cuMemFreeHost", key_of(p));
  return in_context(SIM_SITE(cuMemFreeHost), [&](Context& context) -> CUresult {
    const Allocation* const found = state().allocations.exact(reinterpret_cast<CUdeviceptr>(p));
    if (found == nullptr || found->kind != MemoryKind::kPinned) return CUDA_ERROR_INVALID_VALUE;
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
    complete(context_target(context));
    const Allocation* const still = state().allocations.exact(reinterpret_cast<CUdeviceptr>(p));
    if (still == nullptr) return CUDA_ERROR_INVALID_VALUE;
    munmap(p, mapped_bytes(still->size));
    state().allocations.forget(reinterpret_cast<CUdeviceptr>(p));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytes, unsigned int flags) {
  return register_memory(SIM_SITE(cuMemHostRegister_v2), p, bytes, flags);
}

CUresult cuMemHostRegister(void* p, size_t bytes, unsigned int flags) {
  return register_memory(SIM_SITE(cuMemHostRegister), p, bytes, flags);
}

CUresult cuMemHostUnregister(void* p) {
  return in_context(SIM_SITE(cuMemHostUnregister), [&](Context& context) -> CUresult {
    const Allocation* const found = state().allocations.exact(reinterpret_cast<CUdeviceptr>(p));
    if (found == nullptr || found->kind != MemoryKind::kRegistered)
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    complete(context_target(context));
    state().allocations.forget(reinterpret_cast<CUdeviceptr>(p));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned int flags) {
  return in_context(SIM_SITE(cuMemHostGetDevicePointer_v2), [&](Context&) -> CUresult {
    const Allocation* const found = state().allocations.holding(reinterpret_cast<CUdeviceptr>(p));
    const bool is_shown = host_memory_at(p) != nullptr || (found != nullptr && is_reached_by_host(*found));
    if (out == nullptr || flags != 0 || !is_shown) return CUDA_ERROR_INVALID_VALUE;
    *out = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* p) {
  return in_context(SIM_SITE(cuMemHostGetFlags), [&](Context&) -> CUresult {
    const Allocation* const found = state().allocations.holding(reinterpret_cast<CUdeviceptr>(p));
    const bool is_shown = host_memory_at(p) != nullptr || (found != nullptr && is_reached_by_host(*found));
    if (flags == nullptr || !is_shown) return CUDA_ERROR_INVALID_VALUE;
    // Of memory that is not the host's alone the driver tells what it would take to map that.
    *flags = found->kind == MemoryKind::kMapped    ? CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
             : found->kind == MemoryKind::kManaged ? CU_MEMHOSTALLOC_DEVICEMAP
                                                   : found->flags;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
