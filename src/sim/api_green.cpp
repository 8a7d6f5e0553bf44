// Entry points for green contexts: a part of the device, with streams of its own, whose memory is the primary
// context's. The part itself is not modelled: every green context has the entire device.
#include <cuda.h>

#include <cstring>

#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

constexpr unsigned kMultiprocessors = 132;
const char kEverything = 0;

bool known(CUdevice device) { return device >= 0 && device < static_cast<int>(state().devices.size()); }

// One handle serves as both kinds.
CUcontext as_context(CUgreenCtx green) { return reinterpret_cast<CUcontext>(green); }

CUresult named_green(CUgreenCtx green, ContextPtr& context) {
  context = state().contexts.find(as_context(green));
  return context != nullptr && context->part_of != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return in_driver(SIM_SITE(cuDeviceGetDevResource), [&]() -> CUresult {
    if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    std::memset(resource, 0, sizeof *resource);
    resource->type = type;
    resource->sm.smCount = kMultiprocessors;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources, unsigned int count) {
  return in_driver(SIM_SITE(cuDevResourceGenerateDesc), [&]() -> CUresult {
    if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    *out = reinterpret_cast<CUdevResourceDesc>(const_cast<char*>(&kEverything));
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
  return in_driver(SIM_SITE(cuGreenCtxCreate), [&]() -> CUresult {
    if (out == nullptr || resources == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM)
      return CUDA_ERROR_INVALID_VALUE;
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    const ContextPtr context = create_context(device, 0, retain_primary(device));
    *out = reinterpret_cast<CUgreenCtx>(context->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  return in_driver(SIM_SITE(cuGreenCtxDestroy), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = named_green(green, context);
    if (found != CUDA_SUCCESS) return found;
    destroy_context(context);
    return release_primary(context->device);
  });
}

CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx green) {
  return in_driver(SIM_SITE(cuCtxFromGreenCtx), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = named_green(green, context);
    if (found != CUDA_SUCCESS) return found;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = context->handle;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
