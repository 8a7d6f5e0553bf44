// Entry points for contexts: created and primary ones, the thread's stack of them, peers, limits.
// cuCtxGetCurrent takes no lock: callers ask it on every allocation.
#include <cuda.h>

#include <algorithm>

#include "sim/capture.hpp"
#include "sim/charges.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

bool known(CUdevice device) { return device >= 0 && device < static_cast<int>(state().devices.size()); }

CUresult create(Site& site, CUcontext* out, unsigned flags, CUdevice device) {
  return in_driver(site, [&]() -> CUresult {
    if (out == nullptr || (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (thread_state.depth == kContextDepth) return CUDA_ERROR_OUT_OF_MEMORY;
    const ContextPtr context = create_context(device, flags);
    push_current(*context);
    *out = context->handle;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return create(SIM_SITE(cuCtxCreate_v2), out, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int, unsigned int flags, CUdevice device) {
  return create(SIM_SITE(cuCtxCreate_v3), out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned int flags, CUdevice device) {
  return create(SIM_SITE(cuCtxCreate_v4), out, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  return in_driver(SIM_SITE(cuCtxDestroy_v2), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = named_context(handle, context);
    if (found != CUDA_SUCCESS) return found;
    if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    ThreadState& t = thread_state;
    if (t.depth > 0 && t.stack[t.depth - 1].handle == handle && t.stack[t.depth - 1].id == context->id)
      --t.depth;
    destroy_context(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxAttach(CUcontext* out, unsigned int flags) {
  return in_context(SIM_SITE(cuCtxAttach), [&](Context& context) -> CUresult {
    if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    ++context.attached;
    *out = context.handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDetach(CUcontext handle) {
  bool stays = false;
  const CUresult found = in_driver(SIM_SITE(cuCtxDetach), [&]() -> CUresult {
    ContextPtr context;
    const CUresult named = named_context(handle, context);
    if (named != CUDA_SUCCESS) return named;
    stays = context->attached != 0;
    if (stays) --context->attached;
    return CUDA_SUCCESS;
  });
  return found != CUDA_SUCCESS || stays ? found : cuCtxDestroy_v2(handle);
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return in_driver(SIM_SITE(cuCtxPushCurrent_v2), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = named_context(handle, context);
    if (found != CUDA_SUCCESS) return found;
    return push_current(*context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  return in_driver(SIM_SITE(cuCtxPopCurrent_v2), [&]() -> CUresult {
    ThreadState& t = thread_state;
    if (t.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --t.depth;
    if (out != nullptr) *out = t.stack[t.depth].handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return in_driver(SIM_SITE(cuCtxSetCurrent), [&]() -> CUresult {
    if (handle == nullptr) {
      set_current(nullptr);
      return CUDA_SUCCESS;
    }
    ContextPtr context;
    const CUresult found = named_context(handle, context);
    if (found != CUDA_SUCCESS) return found;
    set_current(context.get());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  CUresult refused = SIM_SITE(cuCtxGetCurrent).enter();
  if (refused == CUDA_SUCCESS) refused = driver_up(From::kProgram);
  if (refused != CUDA_SUCCESS) return refused;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ThreadState& t = thread_state;
  *out = t.depth > 0 ? t.stack[t.depth - 1].handle : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return in_driver(SIM_SITE(cuCtxGetDevice), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = current_context(context);
    if (found != CUDA_SUCCESS) return found;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return in_context(SIM_SITE(cuCtxGetFlags), [&](Context& context) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return in_context(SIM_SITE(cuCtxSetFlags), [&](Context& context) -> CUresult {
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return in_driver(SIM_SITE(cuCtxGetId), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = handle == nullptr ? current_context(context) : named_context(handle, context);
    if (found != CUDA_SUCCESS) return found;
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return in_driver(SIM_SITE(cuCtxGetApiVersion), [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = handle == nullptr ? current_context(context) : named_context(handle, context);
    if (found != CUDA_SUCCESS) return found;
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  const Asked asked("cuCtxSynchronize", 0);
  return in_context(SIM_SITE(cuCtxSynchronize), [&](Context& context) -> CUresult {
    const CUresult allowed = check_context_call(context);
    if (allowed != CUDA_SUCCESS) return allowed;
    complete(context_target(context));
    return context.error;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return in_context(SIM_SITE(cuCtxGetStreamPriorityRange), [&](Context&) -> CUresult {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return in_context(SIM_SITE(cuCtxSetLimit), [&](Context& context) -> CUresult {
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_PRINTF_FIFO_SIZE && !charge(context, value)) return CUDA_ERROR_OUT_OF_MEMORY;
    context.limits[limit] = value;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return in_context(SIM_SITE(cuCtxGetLimit), [&](Context& context) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    const auto set = context.limits.find(limit);
    *value = set != context.limits.end() ? set->second : 1024;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  return in_context(SIM_SITE(cuCtxGetCacheConfig), [&](Context&) -> CUresult {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return in_context(SIM_SITE(cuCtxSetCacheConfig), [](Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return in_context(SIM_SITE(cuCtxEnablePeerAccess), [&](Context& context) -> CUresult {
    ContextPtr other;
    if (named_context(peer, other) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (other->device == context.device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    auto& peers = context.peers;
    if (std::find(peers.begin(), peers.end(), other->id) != peers.end())
      return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    peers.push_back(other->id);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return in_context(SIM_SITE(cuCtxDisablePeerAccess), [&](Context& context) -> CUresult {
    ContextPtr other;
    if (named_context(peer, other) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    auto& peers = context.peers;
    const auto found = std::find(peers.begin(), peers.end(), other->id);
    if (found == peers.end()) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    peers.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return in_driver(SIM_SITE(cuDevicePrimaryCtxRetain), [&]() -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    *out = retain_primary(device)->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return in_driver(SIM_SITE(cuDevicePrimaryCtxRelease_v2), [&]() -> CUresult {
    return known(device) ? release_primary(device) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return in_driver(SIM_SITE(cuDevicePrimaryCtxReset_v2), [&]() -> CUresult {
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    reset_primary(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return in_driver(SIM_SITE(cuDevicePrimaryCtxSetFlags_v2), [&]() -> CUresult {
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    state().devices[static_cast<std::size_t>(device)].primary_flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return in_driver(SIM_SITE(cuDevicePrimaryCtxGetState), [&]() -> CUresult {
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    const Device& d = state().devices[static_cast<std::size_t>(device)];
    const ContextPtr context =
        d.primary_handle != nullptr ? state().contexts.find(d.primary_handle) : nullptr;
    if (flags != nullptr) *flags = d.primary_flags;
    if (active != nullptr) *active = context != nullptr && context->active ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

}  // extern "C"
