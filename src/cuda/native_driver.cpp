// See native_driver.hpp.
#include "cuda/native_driver.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/own_call.hpp"
#include "cuda/real.hpp"
#include "cuda/relaxed_capture.hpp"

namespace cupool::cuda {

using driver::Status;

namespace {

CUmemoryPool native(driver::MemoryPool pool) { return reinterpret_cast<CUmemoryPool>(pool); }
CUstream native(driver::Stream stream) { return reinterpret_cast<CUstream>(stream); }
CUevent native(driver::Event event) { return reinterpret_cast<CUevent>(event); }

template <typename T>
Status set(CUmemoryPool pool, CUmemPool_attribute attribute, T value) {
  return real.cuMemPoolSetAttribute(pool, attribute, &value);
}

Status apply(CUmemoryPool pool, const driver::NativeSettings& settings) {
  Status status = set<cuuint64_t>(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, settings.keep);
  const auto set_flag = [&](CUmemPool_attribute attribute, bool on) {
    if (status == CUDA_SUCCESS) status = set<int>(pool, attribute, on ? 1 : 0);
  };
  set_flag(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, settings.follow_events);
  set_flag(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, settings.opportunistic);
  set_flag(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, settings.internal_dependencies);
  return status;
}

}  // namespace

bool CudaNativeDriver::has_native_pools() {
  const OwnCall guard;
  for (const bool present : {real.cuMemPoolCreate.present(), real.cuMemAllocFromPoolAsync.present(),
                             real.cuMemFreeAsync.present(), real.cuMemPoolSetAttribute.present()}) {
    if (!present) return false;
  }
  CUdevice device = 0;
  int able = 0;
  return real.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
         real.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device) ==
             CUDA_SUCCESS &&
         able != 0;
}

Status CudaNativeDriver::create_pool(int device, const driver::NativeSettings& settings,
                                     driver::MemoryPool* out) {
  const OwnCall guard;
  CUmemPoolProps properties;
  memset(&properties, 0, sizeof properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes =
      settings.shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.maxSize = settings.max_bytes;
  CUmemoryPool pool = nullptr;
  Status status = real.cuMemPoolCreate(&pool, &properties);
  if (status != CUDA_SUCCESS) return status;
  status = apply(pool, settings);
  if (status != CUDA_SUCCESS) real.cuMemPoolDestroy(pool);
  *out = reinterpret_cast<driver::MemoryPool>(pool);
  return status;
}

Status CudaNativeDriver::read_settings(driver::MemoryPool pool, driver::NativeSettings* out) {
  const OwnCall guard;
  cuuint64_t keep = out->keep;
  Status status = real.cuMemPoolGetAttribute(native(pool), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
  out->keep = keep;
  const auto get_flag = [&](CUmemPool_attribute attribute, bool* on) {
    int value = *on ? 1 : 0;
    if (status == CUDA_SUCCESS) status = real.cuMemPoolGetAttribute(native(pool), attribute, &value);
    *on = value != 0;
  };
  get_flag(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &out->follow_events);
  get_flag(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &out->opportunistic);
  get_flag(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &out->internal_dependencies);
  return status;
}

Status CudaNativeDriver::destroy_pool(driver::MemoryPool pool) {
  const OwnCall guard;
  return real.cuMemPoolDestroy(native(pool));
}

Status CudaNativeDriver::create_stream(driver::Stream* out) {
  const OwnCall guard;
  return real.cuStreamCreate(reinterpret_cast<CUstream*>(out), CU_STREAM_NON_BLOCKING);
}

Status CudaNativeDriver::synchronize_stream(driver::Stream stream) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuStreamSynchronize(native(stream));
}

Status CudaNativeDriver::allocate_on(driver::MemoryPool pool, driver::Stream stream, size_t bytes,
                                     driver::Address* out) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  CUdeviceptr start = 0;
  const Status status = real.cuMemAllocFromPoolAsync(&start, bytes, native(pool), native(stream));
  *out = start;
  return status;
}

Status CudaNativeDriver::free_on(driver::Stream stream, driver::Address start) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuMemFreeAsync(start, native(stream));
}

Status CudaNativeDriver::record_on(driver::Stream stream, driver::Event event) {
  const OwnCall guard;
  return real.cuEventRecord(native(event), native(stream));
}

Status CudaNativeDriver::synchronize_event(driver::Event event) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuEventSynchronize(native(event));
}

driver::MemoryPool CudaNativeDriver::pool_of(driver::Address address) {
  const OwnCall guard;
  CUmemoryPool pool = nullptr;
  const CUresult result = real.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
  return result == CUDA_SUCCESS ? reinterpret_cast<driver::MemoryPool>(pool) : nullptr;
}

Status CudaNativeDriver::trim(driver::MemoryPool pool, uint64_t keep) {
  const OwnCall guard;
  const RelaxedCapture relaxed;
  return real.cuMemPoolTrimTo(native(pool), keep);
}

Status CudaNativeDriver::usage(driver::MemoryPool pool, driver::NativeUsage* out) {
  const OwnCall guard;
  Status status = CUDA_SUCCESS;
  const auto get = [&](CUmemPool_attribute attribute, uint64_t* value) {
    cuuint64_t read = 0;
    if (status == CUDA_SUCCESS) status = real.cuMemPoolGetAttribute(native(pool), attribute, &read);
    if (status == CUDA_SUCCESS) *value = read;
  };
  get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &out->used);
  get(CU_MEMPOOL_ATTR_USED_MEM_HIGH, &out->peak_used);
  get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &out->reserved);
  get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &out->peak_reserved);
  // A high-water mark that was reset may be 0 until the next allocation.
  out->peak_used = std::max(out->peak_used, out->used);
  out->peak_reserved = std::max(out->peak_reserved, out->reserved);
  return status;
}

Status CudaNativeDriver::reset_peaks(driver::MemoryPool pool) {
  const OwnCall guard;
  // The driver accepts only 0 here.
  const Status status = set<cuuint64_t>(native(pool), CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  return status != CUDA_SUCCESS ? status
                                : set<cuuint64_t>(native(pool), CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
}

Status CudaNativeDriver::export_pool(driver::MemoryPool pool, int* descriptor) {
  const OwnCall guard;
  return real.cuMemPoolExportToShareableHandle(descriptor, native(pool),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

Status CudaNativeDriver::import_pool(int descriptor, driver::MemoryPool* out) {
  const OwnCall guard;
  void* const handle = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
  return real.cuMemPoolImportFromShareableHandle(reinterpret_cast<CUmemoryPool*>(out), handle,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

Status CudaNativeDriver::export_pointer(driver::Address start, void* data) {
  static_assert(sizeof(CUmemPoolPtrExportData) == driver::kExportBytes);
  const OwnCall guard;
  return real.cuMemPoolExportPointer(static_cast<CUmemPoolPtrExportData*>(data), start);
}

Status CudaNativeDriver::import_pointer(driver::MemoryPool pool, const void* data, driver::Address* out) {
  const OwnCall guard;
  CUmemPoolPtrExportData copy;
  memcpy(&copy, data, sizeof copy);
  CUdeviceptr start = 0;
  const Status status = real.cuMemPoolImportPointer(&start, native(pool), &copy);
  *out = start;
  return status;
}

}  // namespace cupool::cuda
