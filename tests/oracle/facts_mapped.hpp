// A chunk of mapped memory for the chapters about it: made, mapped and made accessible in one go, or step by
// step. Nothing is taken back at the end: the process does that.
#pragma once

#include "facts.hpp"

namespace facts {

inline constexpr size_t kChunk = 2 << 20;

inline CUmemAllocationProp in_device(int device = 0) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

inline CUmemAllocationProp in_host(CUmemLocationType type = CU_MEM_LOCATION_TYPE_HOST_NUMA) {
  CUmemAllocationProp properties = in_device();
  properties.location.type = type;
  return properties;
}

inline CUmemAccessDesc access_of(CUmemAccess_flags flags, int device = 0,
                                 CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE) {
  CUmemAccessDesc wanted = {};
  wanted.location.type = type;
  wanted.location.id = device;
  wanted.flags = flags;
  return wanted;
}

inline unsigned long long access_at(CUdeviceptr p, int device = 0,
                                    CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE) {
  CUmemLocation where = {};
  where.type = type;
  where.id = device;
  unsigned long long flags = 77;
  GUESS(cuMemGetAccess(&flags, &where, p), CUDA_SUCCESS);
  return flags;
}

inline CUdeviceptr reserve(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAddressReserve(&p, bytes, 0, 0, 0));
  return p;
}

inline CUmemGenericAllocationHandle create(const CUmemAllocationProp& properties, size_t bytes = kChunk) {
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, bytes, &properties, 0));
  return handle;
}

// Several chunks side by side in one reservation, which is one chunk longer; no access yet.
inline CUdeviceptr map_chunks(const CUmemAllocationProp& properties, size_t count) {
  const CUdeviceptr p = reserve((count + 1) * kChunk);
  for (size_t i = 0; i < count; ++i) {
    const CUmemGenericAllocationHandle handle = create(properties);
    MUST(cuMemMap(p + i * kChunk, kChunk, 0, handle, 0));
    MUST(cuMemRelease(handle));
  }
  return p;
}

inline CUdeviceptr accessible_chunks(const CUmemAllocationProp& properties, size_t count) {
  const CUdeviceptr p = map_chunks(properties, count);
  const CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  MUST(cuMemSetAccess(p, count * kChunk, &wanted, 1));
  return p;
}

template <typename T>
T attribute(CUpointer_attribute which, CUdeviceptr p) {
  T value = {};
  GUESS(cuPointerGetAttribute(&value, which, p), CUDA_SUCCESS);
  return value;
}

inline size_t free_bytes() {
  size_t free_now = 0;
  MUST(cuMemGetInfo_v2(&free_now, nullptr));
  return free_now;
}

inline unsigned char byte_at(CUdeviceptr p) {
  unsigned char byte = 0;
  MUST(cuMemcpyDtoH_v2(&byte, p, 1));
  return byte;
}

}  // namespace facts
