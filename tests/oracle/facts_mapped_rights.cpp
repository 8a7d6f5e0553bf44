// The chapters about who may touch mapped memory: each device by itself, the host for chunks in its own
// memory, and what happens to work that may not. Each of the last three breaks its context for good.
#include <cstring>

#include "facts_mapped.hpp"

namespace facts {

void mapped_access() {
  Device d;
  CUstream stream = new_stream();
  const CUdeviceptr p = map_chunks(in_device(), 3);
  EXPECT(access_at(p), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
  CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  MUST(cuMemSetAccess(p + kChunk, 2 * kChunk, &wanted, 1));
  GUESS(access_at(p), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT(access_at(p + kChunk), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT(access_at(p + 3 * kChunk - 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  d.launch_fill(stream, p + kChunk, 2 * kChunk, 5);
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemSetAccess(p + kChunk, 2 * kChunk, &wanted, 1));  // twice is as good as once
  wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  GUESS(cuMemSetAccess(p + kChunk, kChunk, &wanted, 1), CUDA_SUCCESS);
  GUESS(access_at(p + kChunk), CU_MEM_ACCESS_FLAGS_PROT_READ);
  GUESS(byte_at(p + kChunk), 5);
  // A new mapping begins without access.
  MUST(cuMemUnmap(p + kChunk, kChunk));
  const CUmemGenericAllocationHandle handle = create(in_device());
  MUST(cuMemMap(p + kChunk, kChunk, 0, handle, 0));
  GUESS(access_at(p + kChunk), CU_MEM_ACCESS_FLAGS_PROT_NONE);

  int devices = 0;
  MUST(cuDeviceGetCount(&devices));
  if (devices < 2) return;
  const CUmemAccessDesc both[] = {access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0),
                                  access_of(CU_MEM_ACCESS_FLAGS_PROT_READ, 1)};
  MUST(cuMemSetAccess(p, 3 * kChunk, both, 2));
  EXPECT(access_at(p, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT(access_at(p, 1), CU_MEM_ACCESS_FLAGS_PROT_READ);
  MUST(cuMemsetD8_v2(p, 6, 3 * kChunk));
  MUST(cuCtxSynchronize());
  CUcontext second = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&second, 1));
  MUST(cuCtxSetCurrent(second));
  EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p), 0);
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p), CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
  EXPECT(byte_at(p), 6);
  // Copies between contexts reach each side from its own device.
  const CUdeviceptr there = allocate(kChunk);
  MUST(cuMemSetAccess(p, 3 * kChunk, both, 1));
  const CUmemAccessDesc closed = access_of(CU_MEM_ACCESS_FLAGS_PROT_NONE, 1);
  MUST(cuMemSetAccess(p, 3 * kChunk, &closed, 1));
  MUST(cuMemcpyPeer(there, second, p, d.context, kChunk));
  MUST(cuCtxSynchronize());
  EXPECT(byte_at(there + 1), 6);
  // Any other is made by the device of its stream, which has no access.
  MUST(cuMemcpyDtoD_v2(there, p, kChunk));
  GUESS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  MUST(cuCtxSetCurrent(d.context));
  if (simulated()) EXPECT(byte_at(p), 6);
}

void mapped_host() {
  Device d;
  CUstream stream = new_stream();
  const size_t free_before = free_bytes();
  const CUdeviceptr p = accessible_chunks(in_host(), 2);
  GUESS(free_before - free_bytes(), 0);
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CU_MEMORYTYPE_HOST);
  d.launch_fill(stream, p + kChunk - 10, 20, 9);
  MUST(cuStreamSynchronize(stream));
  EXPECT(byte_at(p + kChunk + 9), 9);
  GUESS(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p), CU_DEVICE_CPU);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p), 0);
  GUESS(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, p) == nullptr, true);
  GUESS(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p) == p, true);
  CUdeviceptr host = 1;
  GUESS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p), CUDA_ERROR_INVALID_VALUE);
  // A copy between it and the device.
  const CUdeviceptr on_device = allocate(kChunk);
  MUST(cuMemcpyDtoD_v2(on_device, p, 2 * kChunk / 2));
  EXPECT(byte_at(on_device + kChunk - 1), 9);

  GUESS(access_at(p, 0, CU_MEM_LOCATION_TYPE_HOST_NUMA), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  const CUmemAccessDesc wanted =
      access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  const CUresult given = cuMemSetAccess(p, 2 * kChunk, &wanted, 1);
  GUESS(given, CUDA_SUCCESS);
  if (given == CUDA_SUCCESS) {
    auto* const bytes = reinterpret_cast<volatile unsigned char*>(p);
    EXPECT(bytes[kChunk], 9);
    bytes[0] = 77;
    EXPECT(byte_at(p), 77);
    GUESS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p), CUDA_SUCCESS);
    GUESS(host == p, true);
  }
  MUST(cuMemUnmap(p, 2 * kChunk));

  // Of no node in particular.
  int can = 0;
  MUST(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, d.device));
  GUESS(can, 1);
  if (can != 0) {
    const CUdeviceptr anywhere = accessible_chunks(in_host(CU_MEM_LOCATION_TYPE_HOST), 1);
    GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, anywhere), CU_MEMORYTYPE_HOST);
    GUESS(cuMemSetAccess(anywhere, kChunk, &wanted, 1), CUDA_ERROR_INVALID_VALUE);
  }
  size_t granularity = 0;
  const CUmemAllocationProp properties = in_host();
  MUST(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  GUESS(granularity, kChunk);
}

void no_access() {
  Device d;
  CUstream stream = new_stream();
  d.launch_fill(stream, map_chunks(in_device(), 1), 64, 1);
  EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void no_access_copy() {
  Device d;
  unsigned char byte = 0;
  GUESS(cuMemcpyDtoH_v2(&byte, map_chunks(in_device(), 1), 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void read_only() {
  Device d;
  CUstream stream = new_stream();
  const CUdeviceptr p = accessible_chunks(in_device(), 1);
  const CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READ);
  GUESS(cuMemSetAccess(p, kChunk, &wanted, 1), CUDA_SUCCESS);
  GUESS(byte_at(p), 0);
  d.launch_fill(stream, p, 64, 1);
  GUESS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace facts
