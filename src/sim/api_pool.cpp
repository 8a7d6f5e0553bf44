// Entry points for stream-ordered memory and its pools. The work is memory_pools.*'s.
#include <cuda.h>

#include "sim/entry.hpp"
#include "sim/memory_pools.hpp"
#include "sim/options.hpp"

using namespace cupool::sim;

namespace {

using PoolPtr = std::shared_ptr<MemPool>;

bool known(CUdevice device) { return device >= 0 && device < static_cast<int>(state().devices.size()); }

template <typename Body>
CUresult with_pool(Site& site, CUmemoryPool handle, Body&& body) {
  return in_driver(site, [&]() -> CUresult {
    const PoolPtr pool = state().pools.find(handle);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : body(pool);
  });
}

// One place for both directions: where an attribute lives, and how wide it is.
struct Slot {
  std::uint64_t* wide = nullptr;
  int* narrow = nullptr;
  bool settable = false;
};

Slot attribute(MemPool& pool, CUmemPool_attribute which) {
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return {nullptr, &pool.follow_event_dependencies, true};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return {nullptr, &pool.opportunistic, true};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return {nullptr, &pool.internal_dependencies, true};
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return {&pool.release_threshold, nullptr, true};
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return {&pool.reserved, nullptr, false};
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return {&pool.reserved_high, nullptr, true};
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return {&pool.used, nullptr, false};
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return {&pool.used_high, nullptr, true};
    default:
      return {};
  }
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream handle) {
  const Asked asked("cuMemAllocAsync", 0);
  return on_stream(SIM_SITE(cuMemAllocAsync), handle, [&](const StreamPtr& stream) {
    return pool_allocate(*current_pool(stream->context->device), stream, bytes, out);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool_handle, CUstream handle) {
  const Asked asked("cuMemAllocFromPoolAsync", 0);
  return on_stream(SIM_SITE(cuMemAllocFromPoolAsync), handle, [&](const StreamPtr& stream) -> CUresult {
    const PoolPtr pool = state().pools.find(pool_handle);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool_allocate(*pool, stream, bytes, out);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream handle) {
  return on_stream(SIM_SITE(cuMemFreeAsync), handle,
                   [&](const StreamPtr& stream) { return pool_free(stream, p); });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  return in_driver(SIM_SITE(cuDeviceGetDefaultMemPool), [&]() -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    *out = default_pool(device)->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  return in_driver(SIM_SITE(cuDeviceGetMemPool), [&]() -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    *out = current_pool(device)->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  return with_pool(SIM_SITE(cuDeviceSetMemPool), handle, [&](const PoolPtr&) -> CUresult {
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    default_pool(device);
    state().devices[static_cast<std::size_t>(device)].current_pool = handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  return in_driver(SIM_SITE(cuMemPoolCreate), [&]() -> CUresult {
    if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!known(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const PoolPtr pool = make_pool(properties->location.id);
    pool->handle_types = properties->handleTypes;
    *out = pool->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return with_pool(SIM_SITE(cuMemPoolDestroy), handle, [&](const PoolPtr& pool) -> CUresult {
    if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
    for (const CachedMemory& cached : pool->cached) complete(cached.after);
    trim_pool(*pool, 0);
    for (Device& device : state().devices) {
      if (device.current_pool == handle) device.current_pool = device.default_pool;
    }
    state().pools.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  return with_pool(SIM_SITE(cuMemPoolTrimTo), handle, [&](const PoolPtr& pool) {
    trim_pool(*pool, keep);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return with_pool(SIM_SITE(cuMemPoolSetAttribute), handle, [&](const PoolPtr& pool) -> CUresult {
    const Slot slot = attribute(*pool, which);
    if (value == nullptr || !slot.settable) return CUDA_ERROR_INVALID_VALUE;
    if (slot.narrow != nullptr) *slot.narrow = *static_cast<int*>(value);
    if (slot.wide != nullptr) *slot.wide = *static_cast<cuuint64_t*>(value);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return with_pool(SIM_SITE(cuMemPoolGetAttribute), handle, [&](const PoolPtr& pool) -> CUresult {
    const Slot slot = attribute(*pool, which);
    if (value == nullptr || (slot.narrow == nullptr && slot.wide == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    if (slot.narrow != nullptr) *static_cast<int*>(value) = *slot.narrow;
    if (slot.wide != nullptr) *static_cast<cuuint64_t*>(value) = *slot.wide;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  return with_pool(SIM_SITE(cuMemPoolSetAccess), handle, [&](const PoolPtr&) -> CUresult {
    return map == nullptr && count > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation*) {
  return with_pool(SIM_SITE(cuMemPoolGetAccess), handle, [&](const PoolPtr&) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
