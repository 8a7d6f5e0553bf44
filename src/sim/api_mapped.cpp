// Entry points for virtual memory management. Each checks everything first: a refused call changes nothing.
// None of them waits: unmapping memory that queued work still uses makes that work fail, as on a GPU, and the
// oracle tells it.
#include <cuda.h>

#include <vector>

#include "sim/entry.hpp"
#include "sim/mapped_memory.hpp"

using namespace cupool::sim;

namespace {

// The simulated machine has one NUMA node.
constexpr int kNumaNodes = 1;

bool whole(std::uint64_t bytes) { return bytes != 0 && bytes % kGranule == 0; }

bool known_device(int device) { return device >= 0 && device < static_cast<int>(state().devices.size()); }

CUresult check_location(const CUmemAllocationProp& p) {
  switch (p.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return known_device(p.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      return p.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return p.location.id >= 0 && p.location.id < kNumaNodes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // the node of the current thread too, says the documentation
  }
}

CUresult check_properties(const CUmemAllocationProp& p) {
  if (p.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const unsigned types = p.requestedHandleTypes;
  if ((types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  return check_location(p);
}

CUresult make(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* p) {
  if (out == nullptr || p == nullptr || !whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult checked = check_properties(*p);
  if (checked != CUDA_SUCCESS) return checked;
  collect_lingering_chunks();
  PhysicalMemory memory;
  memory.device = p->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? p->location.id : CU_DEVICE_CPU;
  Arena& arena = state().chunk_arena(memory.device);
  memory.bytes = bytes;
  memory.offset = bytes > arena.capacity() ? UINT64_MAX : arena.take_physical(granules_for(bytes));
  if (memory.offset == UINT64_MAX) {
    note_refusal();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory.fd = arena.fd();
  memory.properties = *p;
  *out = adopt_physical(memory);
  return CUDA_SUCCESS;
}

bool anything_mapped(CUdeviceptr p, std::uint64_t bytes) {
  for (CUdeviceptr at = p; at < p + bytes; at += kGranule) {
    if (state().allocations.holding(at) != nullptr) return true;
  }
  return false;
}

// The mappings that make up a range; false when it has a hole or cuts one.
bool mappings_in(CUdeviceptr p, std::uint64_t bytes, std::vector<Allocation*>& out) {
  if (!whole(bytes) || p % kGranule != 0 || reservation_of(p, bytes).bytes == 0) return false;
  for (CUdeviceptr at = p; at < p + bytes;) {
    Allocation* const found = state().allocations.exact(at);
    if (found == nullptr || found->kind != MemoryKind::kMapped) return false;
    out.push_back(found);
    at += found->size;
    if (at > p + bytes) return false;
  }
  return true;
}

bool on_host(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

// Whether the location may be given access to the mapping.
CUresult check_access(const CUmemAccessDesc& wanted, const Allocation& mapping) {
  if (wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUmemLocationType type = wanted.location.type;
  if (type == CU_MEM_LOCATION_TYPE_DEVICE)
    return known_device(wanted.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  if (!on_host(type) || !mapping.is_host_chunk()) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocationType lies = mapped_memory().physical[mapping.physical].properties.location.type;
  return type == CU_MEM_LOCATION_TYPE_HOST || type == lies ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult give_access(const CUmemAccessDesc& wanted, Allocation& mapping) {
  if (on_host(wanted.location.type))
    return set_host_access(mapping, wanted.flags) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  mapping.access[static_cast<std::size_t>(wanted.location.id)] = wanted.flags;
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc* list, size_t count) {
  std::vector<Allocation*> mappings;
  if (list == nullptr || count == 0 || !mappings_in(p, bytes, mappings)) return CUDA_ERROR_INVALID_VALUE;
  for (const Allocation* const mapping : mappings) {
    for (size_t i = 0; i < count; ++i) {
      const CUresult checked = check_access(list[i], *mapping);
      if (checked != CUDA_SUCCESS) return checked;
    }
  }
  state().counters.access_chunks += mappings.size();
  for (Allocation* const mapping : mappings) {
    for (size_t i = 0; i < count; ++i) {
      const CUresult given = give_access(list[i], *mapping);
      if (given != CUDA_SUCCESS) return given;
    }
  }
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr p, size_t bytes) {
  std::vector<Allocation*> mappings;
  if (!mappings_in(p, bytes, mappings)) return CUDA_ERROR_INVALID_VALUE;
  state().counters.unmap_chunks += mappings.size();
  for (const Allocation* const mapping : mappings) unmap_chunk(*mapping);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* p,
                                       CUmemAllocationGranularity_flags option) {
  return in_driver(SIM_SITE(cuMemGetAllocationGranularity), [&]() -> CUresult {
    if (out == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
      return CUDA_ERROR_INVALID_VALUE;
    const CUresult checked = check_properties(*p);
    if (checked == CUDA_SUCCESS) *out = kGranule;
    return checked;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemAddressReserve), [&]() -> CUresult {
    ++state().counters.reserve_calls;
    const bool sound = out != nullptr && whole(bytes) && (alignment & (alignment - 1)) == 0 && flags == 0;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr base = state().reservation_arena().reserve(granules_for(bytes), alignment);
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
    if (found == all.end() || found->second != bytes || anything_mapped(p, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    state().reservation_arena().unreserve(p, granules_for(bytes));
    all.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemCreate), [&] {
    ++state().counters.create_calls;
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : make(out, bytes, properties);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return in_driver(SIM_SITE(cuMemRelease), [&]() -> CUresult {
    ++state().counters.release_calls;
    PhysicalMemory* const memory = find_physical(handle);
    if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
    --memory->references;
    drop_physical_if_unused(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemMap), [&]() -> CUresult {
    ++state().counters.map_calls;
    const PhysicalMemory* const memory = find_physical(handle);
    // "Currently must be zero", says the documentation of the offset.
    if (memory == nullptr || flags != 0 || offset != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!whole(bytes) || p % kGranule != 0 || bytes > memory->bytes) return CUDA_ERROR_INVALID_VALUE;
    if (reservation_of(p, bytes).bytes == 0 || anything_mapped(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return map_chunk(p, bytes, handle) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  const Asked asked("cuMemUnmap", key_of(p));
  return in_driver(SIM_SITE(cuMemUnmap), [&] {
    ++state().counters.unmap_calls;
    return unmap(p, bytes);
  });
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc* list, size_t count) {
  return in_driver(SIM_SITE(cuMemSetAccess), [&] {
    ++state().counters.access_calls;
    return set_access(p, bytes, list, count);
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* where, CUdeviceptr p) {
  return in_driver(SIM_SITE(cuMemGetAccess), [&]() -> CUresult {
    const Allocation* const found = state().allocations.holding(p);
    const bool sound = flags != nullptr && where != nullptr && found != nullptr;
    if (sound && found->kind == MemoryKind::kDevice && where->type == CU_MEM_LOCATION_TYPE_DEVICE) {
      *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      return CUDA_SUCCESS;
    }
    if (!sound || found->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
    if (on_host(where->type)) {
      *flags = found->host_access;
      return CUDA_SUCCESS;
    }
    if (where->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!known_device(where->id)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = found->access[static_cast<std::size_t>(where->id)];
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle handle) {
  return in_driver(SIM_SITE(cuMemGetAllocationPropertiesFromHandle), [&]() -> CUresult {
    const PhysicalMemory* const memory = find_physical(handle);
    if (out == nullptr || memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = memory->properties;
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
