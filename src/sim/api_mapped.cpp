// Entry points for virtual memory management. None of them waits: unmapping memory that queued work still
// uses makes that work fail, as on a GPU.
#include <cuda.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "sim/entry.hpp"
#include "sim/mapped_memory.hpp"

using namespace cupool::sim;

namespace {

bool whole(std::uint64_t bytes) { return bytes != 0 && bytes % kGranule == 0; }

bool reserved(CUdeviceptr p, std::uint64_t bytes) {
  auto next = mapped_memory().reserved.upper_bound(p);
  if (next == mapped_memory().reserved.begin()) return false;
  --next;
  return p + bytes <= next->first + next->second;
}

CUresult make(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* p) {
  if (out == nullptr || p == nullptr || !whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const int device = p->location.id;
  if (device < 0 || device >= static_cast<int>(state().devices.size())) return CUDA_ERROR_INVALID_DEVICE;
  Arena& arena = state().arena(device);
  PhysicalMemory memory;
  memory.device = device;
  memory.bytes = bytes;
  memory.offset = bytes > arena.capacity() ? UINT64_MAX : arena.take_physical(granules_for(bytes));
  if (memory.offset == UINT64_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  memory.fd = arena.fd();
  memory.properties = *p;
  state().note_usage();
  *out = mapped_memory().next_handle++;
  mapped_memory().physical[*out] = memory;
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr p, size_t bytes) {
  State& s = state();
  for (CUdeviceptr at = p; at < p + bytes;) {
    const Allocation* const found = s.allocations.exact(at);
    if (found == nullptr || found->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
    const Allocation gone = *found;
    s.allocations.forget(at);
    s.arena_of(at)->unmap(at, gone.size);
    --mapped_memory().physical[gone.physical].mappings;
    drop_physical_if_unused(gone.physical);
    at += gone.size;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* p,
                                       CUmemAllocationGranularity_flags) {
  return in_driver(SIM_SITE(cuMemGetAllocationGranularity), [&]() -> CUresult {
    if (out == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = kGranule;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemAddressReserve), [&]() -> CUresult {
    if (out == nullptr || !whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr base = state().arena(0).reserve(granules_for(bytes), alignment);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    mapped_memory().reserved[base] = bytes;
    *out = base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes) {
  return in_driver(SIM_SITE(cuMemAddressFree), [&]() -> CUresult {
    auto& all = mapped_memory().reserved;
    const auto found = all.find(p);
    if (found == all.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    state().arena_of(p)->unreserve(p, granules_for(bytes));
    all.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemCreate),
                   [&] { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : make(out, bytes, properties); });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return in_driver(SIM_SITE(cuMemRelease), [&]() -> CUresult {
    const auto found = mapped_memory().physical.find(handle);
    if (found == mapped_memory().physical.end() || found->second.references == 0)
      return CUDA_ERROR_INVALID_VALUE;
    --found->second.references;
    drop_physical_if_unused(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemMap), [&]() -> CUresult {
    State& s = state();
    const auto found = mapped_memory().physical.find(handle);
    if (found == mapped_memory().physical.end() || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    PhysicalMemory& memory = found->second;
    if (!whole(bytes) || offset + bytes > memory.bytes || !reserved(p, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = p; at < p + bytes; at += kGranule) {
      if (s.allocations.holding(at) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    }
    if (!s.arena_of(p)->map(p, bytes, memory.fd, memory.offset + offset)) return CUDA_ERROR_OUT_OF_MEMORY;
    ++memory.mappings;
    Allocation made;
    made.base = p;
    made.size = bytes;
    made.kind = MemoryKind::kMapped;
    made.device = memory.device;
    made.physical = handle;
    made.physical_offset = offset;
    s.allocations.adopt(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  return in_driver(SIM_SITE(cuMemUnmap),
                   [&] { return whole(bytes) ? unmap(p, bytes) : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc* list, size_t count) {
  return in_driver(SIM_SITE(cuMemSetAccess), [&]() -> CUresult {
    if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = p; at < p + bytes;) {
      Allocation* const found = state().allocations.holding(at);
      if (found == nullptr || found->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
      found->access = list[0].flags;
      at = found->base + found->size;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation*, CUdeviceptr p) {
  return in_driver(SIM_SITE(cuMemGetAccess), [&]() -> CUresult {
    const Allocation* const found = state().allocations.holding(p);
    if (flags == nullptr || found == nullptr || found->kind != MemoryKind::kMapped)
      return CUDA_ERROR_INVALID_VALUE;
    *flags = found->access;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle handle) {
  return in_driver(SIM_SITE(cuMemGetAllocationPropertiesFromHandle), [&]() -> CUresult {
    const auto found = mapped_memory().physical.find(handle);
    if (out == nullptr || found == mapped_memory().physical.end()) return CUDA_ERROR_INVALID_VALUE;
    *out = found->second.properties;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  return in_driver(SIM_SITE(cuMemRetainAllocationHandle), [&]() -> CUresult {
    const Allocation* const found = state().allocations.holding(reinterpret_cast<CUdeviceptr>(address));
    if (out == nullptr || found == nullptr || found->kind != MemoryKind::kMapped)
      return CUDA_ERROR_INVALID_VALUE;
    ++mapped_memory().physical[found->physical].references;
    *out = found->physical;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
