// See mapping.hpp.
#include "cuda/mapping.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/own_call.hpp"
#include "cuda/real.hpp"

namespace cupool::cuda {

using driver::Status;

namespace {

size_t index(int device) { return static_cast<size_t>(std::clamp(device, 0, stats::kMostDevices - 1)); }

int attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  return real.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

CUmemGenericAllocationHandle native(driver::Chunk chunk) {
  return static_cast<CUmemGenericAllocationHandle>(chunk);
}

}  // namespace

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

bool CudaMapping::can_map(int device) {
  const OwnCall guard;
  for (const bool present :
       {real.cuMemAddressReserve.present(), real.cuMemAddressFree.present(), real.cuMemCreate.present(),
        real.cuMemRelease.present(), real.cuMemMap.present(), real.cuMemUnmap.present(),
        real.cuMemSetAccess.present(), real.cuMemGetAllocationGranularity.present()}) {
    if (!present) return false;
  }
  if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) == 0) return false;
  const CUmemAllocationProp properties = properties_of(device);
  size_t step = 0;
  if (real.cuMemGetAllocationGranularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
          CUDA_SUCCESS ||
      step == 0 || driver::kMappingStep % step != 0)
    return false;
  Support& support = support_[index(device)];
  support.direct_access.store(
      attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) != 0,
      std::memory_order_relaxed);
  support.no_export.store(
      attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device) == 0,
      std::memory_order_relaxed);
  support.host_node.store(std::max(0, attribute(kAttributeHostNumaId, device)), std::memory_order_relaxed);
  return true;
}

Status CudaMapping::reserve(uint64_t bytes, driver::Address* out) {
  const OwnCall guard;
  CUdeviceptr start = 0;
  const Status status = real.cuMemAddressReserve(&start, bytes, driver::kMappingStep, 0, 0);
  *out = start;
  return status;
}

Status CudaMapping::unreserve(driver::Address start, uint64_t bytes) {
  const OwnCall guard;
  return real.cuMemAddressFree(start, bytes);
}

Status CudaMapping::create(int device, driver::Backing backing, uint64_t bytes, driver::Chunk* out) {
  const OwnCall guard;
  Support& support = support_[index(device)];
  CUmemAllocationProp properties = properties_of(device);
  if (backing == driver::Backing::kHost) {
    properties.location.type = kLocationHostNuma;
    properties.location.id = support.host_node.load(std::memory_order_relaxed);
  } else if (support.direct_access.load(std::memory_order_relaxed)) {
    properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  // What cuMemAlloc's memory can do besides. Where the driver refuses one of these, chunks go without it.
  CUmemGenericAllocationHandle handle = 0;
  Status status = CUDA_SUCCESS;
  for (;;) {
    const bool inflates = !support.no_inflate.load(std::memory_order_relaxed);
    const bool exports = !support.no_export.load(std::memory_order_relaxed);
    properties.allocFlags.usage = inflates && backing == driver::Backing::kDevice ? kUsageDecompress : 0;
    properties.requestedHandleTypes =
        exports ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    status = real.cuMemCreate(&handle, bytes, &properties, 0);
    const bool is_refused = status == CUDA_ERROR_INVALID_VALUE || status == CUDA_ERROR_NOT_SUPPORTED;
    if (!is_refused || (!inflates && !exports)) break;
    (inflates ? support.no_inflate : support.no_export).store(true, std::memory_order_relaxed);
  }
  *out = driver::Chunk{handle};
  return status;
}

Status CudaMapping::release(driver::Chunk chunk) {
  const OwnCall guard;
  return real.cuMemRelease(native(chunk));
}

Status CudaMapping::map(driver::Address at, uint64_t bytes, driver::Chunk chunk) {
  const OwnCall guard;
  return real.cuMemMap(at, bytes, 0, native(chunk), 0);
}

Status CudaMapping::unmap(driver::Address start, uint64_t bytes) {
  const OwnCall guard;
  return real.cuMemUnmap(start, bytes);
}

Status CudaMapping::allow(driver::Address start, uint64_t bytes, const int* devices, size_t count,
                          Access access) {
  const OwnCall guard;
  Status status = CUDA_SUCCESS;
  for (size_t i = 0; i < count && status == CUDA_SUCCESS; ++i) {
    CUmemAccessDesc one;
    memset(&one, 0, sizeof one);
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = devices[i];
    one.flags =
        access == Access::kReadWrite ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    status = real.cuMemSetAccess(start, bytes, &one, 1);
  }
  return status;
}

Status CudaMapping::retain(driver::Address address, driver::Chunk* out) {
  const OwnCall guard;
  CUmemGenericAllocationHandle handle = 0;
  const Status status = real.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address));
  *out = driver::Chunk{handle};
  return status;
}

Status CudaMapping::export_chunk(driver::Chunk chunk, int* descriptor) {
  const OwnCall guard;
  return real.cuMemExportToShareableHandle(descriptor, native(chunk),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

Status CudaMapping::import_chunk(int descriptor, driver::Chunk* out) {
  const OwnCall guard;
  CUmemGenericAllocationHandle handle = 0;
  void* const shared = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
  const Status status =
      real.cuMemImportFromShareableHandle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  *out = driver::Chunk{handle};
  return status;
}

}  // namespace cupool::cuda
