// The chapters about mapped memory: what is answered about it, what is refused, how long it lives, and how it
// is shared. EXPECT is what was read off a GPU, GUESS what documentation or reason say.
#include "facts_mapped.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace facts {

bool simulated() {
  static const bool found = [] {
    char name[64] = {};
    return cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS && std::strstr(name, "cupool") != nullptr;
  }();
  return found;
}

void mapped() {
  Device d;
  CUstream stream = new_stream();
  CUmemAllocationProp properties = in_device();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0;
  MUST(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT(granularity, kChunk);
  MUST(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT(granularity, kChunk);
  const size_t free_before = free_bytes();
  const CUdeviceptr p = accessible_chunks(properties, 2);
  GUESS(free_before - free_bytes(), 2 * kChunk);
  d.launch_fill(stream, p + kChunk - 100, 200, 7);
  MUST(cuStreamSynchronize(stream));
  EXPECT(byte_at(p + kChunk - 1), 7);
  EXPECT(byte_at(p + kChunk), 7);
  GUESS(byte_at(p), 0);

  CUdeviceptr base = 0;
  size_t size = 0;
  const CUdeviceptr inside = p + kChunk + 77;
  MUST(cuMemGetAddressRange_v2(&base, &size, inside));
  EXPECT(base - p, kChunk);
  EXPECT(size, kChunk);
  EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) - p, 0);
  EXPECT(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 3 * kChunk);
  EXPECT(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside) == nullptr, true);
  EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside), 0);
  CUipcMemHandle legacy;
  EXPECT(cuIpcGetMemHandle(&legacy, p), CUDA_ERROR_INVALID_VALUE);
  const unsigned on = 1;
  EXPECT(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p), CUDA_ERROR_NOT_SUPPORTED);

  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside), 0);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CU_MEMORYTYPE_DEVICE);
  GUESS(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside, true);
  CUdeviceptr host = 1;
  GUESS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), CUDA_ERROR_INVALID_VALUE);
  GUESS(host, 0);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), 0);
  GUESS(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1);
  GUESS(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  GUESS(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside) == nullptr, true);
  GUESS(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside) - p, kChunk);
  GUESS(attribute<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), kChunk);
  const auto number = [](CUpointer_attribute which, CUdeviceptr at) {
    return attribute<unsigned long long>(which, at);
  };
  GUESS(number(CU_POINTER_ATTRIBUTE_BUFFER_ID, p) != number(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside), true);
  GUESS(
      number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p) != number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, inside),
      true);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside), 0);
  GUESS(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, inside), 0);
  properties.allocFlags.gpuDirectRDMACapable = 1;
  GUESS(
      attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, accessible_chunks(properties, 1)),
      1);
  // Reserved and not mapped.
  unsigned is_mapped = 7;
  GUESS(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, p + 2 * kChunk),
        CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemGetAddressRange_v2(&base, &size, p + 2 * kChunk), CUDA_ERROR_NOT_FOUND);
  GUESS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);

  CUmemGenericAllocationHandle again = 0;
  MUST(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(inside)));
  CUmemAllocationProp told = {};
  MUST(cuMemGetAllocationPropertiesFromHandle(&told, again));
  GUESS(told.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  GUESS(told.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  // One chunk at two places.
  MUST(cuMemMap(p + 2 * kChunk, kChunk, 0, again, 0));
  const CUmemAccessDesc readable = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  MUST(cuMemSetAccess(p + 2 * kChunk, kChunk, &readable, 1));
  GUESS(byte_at(p + 2 * kChunk), 7);
  GUESS(number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p + 2 * kChunk) ==
            number(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, inside),
        true);
  MUST(cuMemRelease(again));
  MUST(cuMemUnmap(p, 3 * kChunk));
  MUST(cuMemAddressFree(p, 3 * kChunk));
  GUESS(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(p)), CUDA_ERROR_INVALID_VALUE);
}

namespace {

// A driver that maps after all must not change what the next question means.
CUresult map_refused(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                     unsigned long long flags) {
  const CUresult code = cuMemMap(p, bytes, offset, handle, flags);
  if (code == CUDA_SUCCESS) cuMemUnmap(p, bytes);
  return code;
}

}  // namespace

void mapped_refusals() {
  Device d;
  const CUmemAllocationProp properties = in_device();
  CUdeviceptr p = 0;
  GUESS(cuMemAddressReserve(&p, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemAddressReserve(&p, kChunk + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemAddressReserve(&p, kChunk, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemAddressReserve(&p, kChunk, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  MUST(cuMemAddressReserve(&p, 4 * kChunk, 1ull << 30, 0, 0));
  EXPECT(p % (1ull << 30), 0);

  CUmemGenericAllocationHandle two = create(properties, 2 * kChunk);
  CUmemGenericAllocationHandle one = create(properties);
  CUmemGenericAllocationHandle none = 0;
  GUESS(cuMemCreate(&none, kChunk + 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemCreate(&none, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemCreate(&none, kChunk, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemCreate(&none, 1ull << 46, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  const CUmemAllocationProp nowhere = in_device(99);
  GUESS(cuMemCreate(&none, kChunk, &nowhere, 0), CUDA_ERROR_INVALID_DEVICE);
  CUmemAllocationProp unplaced = properties;
  unplaced.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  GUESS(cuMemCreate(&none, kChunk, &unplaced, 0), CUDA_ERROR_INVALID_VALUE);
  const CUmemAllocationProp current_node = in_host(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
  GUESS(cuMemCreate(&none, kChunk, &current_node, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp exported_host = in_host(CU_MEM_LOCATION_TYPE_HOST);
  exported_host.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  GUESS(cuMemCreate(&none, kChunk, &exported_host, 0), CUDA_ERROR_INVALID_VALUE);

  GUESS(map_refused(p, 3 * kChunk, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p, kChunk, kChunk, two, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p + 4096, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p, kChunk + 4096, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p + 3 * kChunk, 2 * kChunk, 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p + 64 * kChunk, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p, kChunk, 0, one, 1), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr owned = allocate(kChunk);
  GUESS(map_refused(owned, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemMap(p, 2 * kChunk, 0, two, 0), CUDA_SUCCESS);
  GUESS(map_refused(p, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(map_refused(p + kChunk, kChunk, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemMap(p + 3 * kChunk, kChunk, 0, one, 0), CUDA_SUCCESS);

  const CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  GUESS(cuMemSetAccess(p, 4 * kChunk, &wanted, 1), CUDA_ERROR_INVALID_VALUE);  // a hole
  GUESS(cuMemSetAccess(p, kChunk, &wanted, 1), CUDA_ERROR_INVALID_VALUE);      // half of a chunk
  GUESS(cuMemSetAccess(p, 2 * kChunk, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemSetAccess(p, 2 * kChunk, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemSetAccess(owned, kChunk, &wanted, 1), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc nobody = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 99);
  GUESS(cuMemSetAccess(p, 2 * kChunk, &nobody, 1), CUDA_ERROR_INVALID_DEVICE);
  const CUmemAccessDesc odd = access_of(static_cast<CUmemAccess_flags>(2));
  GUESS(cuMemSetAccess(p, 2 * kChunk, &odd, 1), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc host = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0, CU_MEM_LOCATION_TYPE_HOST);
  GUESS(cuMemSetAccess(p, 2 * kChunk, &host, 1), CUDA_ERROR_INVALID_VALUE);
  GUESS(access_at(p), CU_MEM_ACCESS_FLAGS_PROT_NONE);

  GUESS(cuMemUnmap(p, kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemUnmap(p + kChunk, kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemUnmap(p, 4 * kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemUnmap(owned, kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemAddressFree(p, 4 * kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemUnmap(p, 2 * kChunk), CUDA_SUCCESS);
  GUESS(cuMemUnmap(p, 2 * kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemUnmap(p + 3 * kChunk, kChunk), CUDA_SUCCESS);
  GUESS(cuMemAddressFree(p, 2 * kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemAddressFree(p + kChunk, 3 * kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemAddressFree(p, 4 * kChunk), CUDA_SUCCESS);
  GUESS(cuMemAddressFree(p, 4 * kChunk), CUDA_ERROR_INVALID_VALUE);
  GUESS(cuMemRelease(one), CUDA_SUCCESS);
  GUESS(cuMemRelease(two), CUDA_SUCCESS);
  // The documentation leaves this undefined, and a driver may crash: asked of the simulated one alone.
  if (simulated()) EXPECT(cuMemRelease(two), CUDA_ERROR_INVALID_VALUE);
}

// A chunk that gets a second place while work by the first is queued.
void mapped_twice() {
  Device d;
  CUstream stream = new_stream();
  CUstream other = new_stream();
  CUevent done = new_event();
  const CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUmemGenericAllocationHandle chunk = create(in_device());
  const CUdeviceptr p = reserve(2 * kChunk);
  const CUdeviceptr second = p + kChunk;
  MUST(cuMemMap(p, kChunk, 0, chunk, 0));
  MUST(cuMemSetAccess(p, kChunk, &wanted, 1));
  const size_t free_before = free_bytes();
  for (int i = 0; i < 10; ++i) MUST(d.launch_spin(stream));
  d.launch_fill(stream, p, 300, 3);
  MUST(cuMemMap(second, kChunk, 0, chunk, 0));
  MUST(cuMemSetAccess(second, kChunk, &wanted, 1));
  // Nothing of it waited, and the device has as much as before.
  if (!simulated()) GUESS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  GUESS(free_before - free_bytes(), 0);
  // In stream order, and by an event, work by one address follows work by the other.
  d.launch_fill(stream, second + 100, 100, 4);
  MUST(cuEventRecord(done, stream));
  MUST(cuStreamWaitEvent(other, done, 0));
  d.launch_fill(other, p + 150, 100, 5);
  MUST(cuStreamSynchronize(other));
  const int wanted_bytes[][2] = {{99, 3}, {100, 4}, {149, 4}, {150, 5}, {249, 5}, {250, 3}};
  for (const auto& [at, value] : wanted_bytes) {
    EXPECT(byte_at(p + static_cast<size_t>(at)), value);
    EXPECT(byte_at(second + static_cast<size_t>(at)), value);
  }
  MUST(cuMemUnmap(p, kChunk));
  EXPECT(byte_at(second + 100), 4);
  MUST(cuMemRelease(chunk));
  EXPECT(byte_at(second + 150), 5);
  GUESS(free_before - free_bytes(), 0);
  MUST(cuMemUnmap(second, kChunk));
  GUESS(free_bytes() - free_before, kChunk);
}

void mapped_contexts() {
  Device d;
  CUcontext own = nullptr;
  MUST(cuCtxCreate_v4(&own, nullptr, 0, d.device));
  const size_t free_before = free_bytes();
  const CUdeviceptr p = accessible_chunks(in_device(), 1);
  MUST(cuMemsetD8_v2(p, 42, kChunk));
  MUST(cuCtxDestroy_v2(own));
  MUST(cuCtxSetCurrent(d.context));
  GUESS(byte_at(p), 42);
  MUST(cuDevicePrimaryCtxReset_v2(d.device));
  MUST(cuDevicePrimaryCtxRetain(&d.context, d.device));
  MUST(cuCtxSetCurrent(d.context));
  GUESS(byte_at(p), 42);
  // The handle is released: the mapping alone holds the memory.
  GUESS(free_before - free_bytes(), kChunk);
  MUST(cuMemUnmap(p, kChunk));
  GUESS(free_before - free_bytes(), 0);
}

namespace {

// Runs this program again with the chunk's descriptor open; its exit code is the first byte found there.
int first_byte_elsewhere(int file) {
  const pid_t child = fork();
  if (child == 0) {
    fcntl(file, F_SETFD, 0);
    execl("/proc/self/exe", "facts", "open-chunk", std::to_string(file).c_str(), nullptr);
    _exit(255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

CUresult import_from(CUmemGenericAllocationHandle* out, int file) {
  return cuMemImportFromShareableHandle(out, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

}  // namespace

int open_chunk(const char* descriptor) {
  Device d;
  const int file = std::atoi(descriptor);
  CUmemGenericAllocationHandle handle = 0;
  MUST(import_from(&handle, file));
  close(file);
  CUmemAllocationProp told = {};
  MUST(cuMemGetAllocationPropertiesFromHandle(&told, handle));
  GUESS(told.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  const CUdeviceptr p = reserve(kChunk);
  MUST(cuMemMap(p, kChunk, 0, handle, 0));
  MUST(cuMemRelease(handle));
  const CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  MUST(cuMemSetAccess(p, kChunk, &wanted, 1));
  const unsigned char found = byte_at(p);
  MUST(cuMemsetD8_v2(p, 99, kChunk));
  MUST(cuCtxSynchronize());
  return wrong_answers == 0 ? found : 255;
}

void mapped_sharing() {
  Device d;
  CUmemAllocationProp properties = in_device();
  int file = -1;
  CUmemGenericAllocationHandle handle = create(properties);
  GUESS(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
  MUST(cuMemRelease(handle));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUdeviceptr p = accessible_chunks(properties, 2);
  MUST(cuMemsetD8_v2(p, 11, kChunk));
  MUST(cuMemsetD8_v2(p + kChunk, 22, kChunk));
  MUST(cuCtxSynchronize());
  MUST(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(p + kChunk)));
  MUST(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT(first_byte_elsewhere(file), 22);
  EXPECT(byte_at(p + kChunk), 99);
  EXPECT(byte_at(p), 11);

  // The descriptor holds the memory after everything else let it go.
  const size_t free_before = free_bytes();
  MUST(cuMemUnmap(p, 2 * kChunk));
  MUST(cuMemRelease(handle));
  GUESS(free_bytes() - free_before, kChunk);
  const CUdeviceptr other = accessible_chunks(properties, 8);
  MUST(cuMemsetD8_v2(other, 55, 8 * kChunk));
  MUST(cuCtxSynchronize());
  MUST(cuMemUnmap(other, 8 * kChunk));
  CUmemGenericAllocationHandle again = 0;
  MUST(import_from(&again, file));
  MUST(cuMemMap(p, kChunk, 0, again, 0));
  const CUmemAccessDesc wanted = access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  MUST(cuMemSetAccess(p, kChunk, &wanted, 1));
  EXPECT(byte_at(p), 99);
  MUST(cuMemUnmap(p, kChunk));
  MUST(cuMemRelease(again));
  close(file);
  GUESS(free_bytes() - free_before, 2 * kChunk);

  const int stranger = open("/dev/null", O_RDWR | O_CLOEXEC);
  GUESS(import_from(&again, stranger), CUDA_ERROR_INVALID_VALUE);
  GUESS(import_from(&again, -1), CUDA_ERROR_INVALID_VALUE);
  close(stranger);
}

}  // namespace facts
