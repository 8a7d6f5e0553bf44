// Entry points for streams: made, destroyed, described, waited for; host functions; values in memory that a
// stream writes or waits for. Waiting calls follow the capture rules.
#include <cuda.h>

#include <cstring>

#include "sim/capture.hpp"
#include "sim/entry.hpp"
#include "sim/kernels.hpp"

using namespace cupool::sim;

namespace {

CUresult create(Site& site, CUstream* out, unsigned flags, int priority) {
  return in_context(site, [&](Context& context) -> CUresult {
    if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    stand_beside_launches(context);
    *out = create_stream(context, StreamKind::kUser, flags, priority)->handle;
    return CUDA_SUCCESS;
  });
}

// The driver looks at whether an allocation is there, in whole units or granules, not at its last byte.
bool holds_word(CUdeviceptr p, std::uint64_t bytes) {
  if (p % bytes != 0) return false;
  const Allocation* found = state().allocations.holding(p & ~(kSmallUnit - 1));
  if (found != nullptr) return true;
  found = state().allocations.holding(p & ~(kGranule - 1));
  return found != nullptr && found->base + found->granules * kGranule > p;
}

template <typename T>
CUresult write_value(Site& site, CUstream stream, CUdeviceptr p, T value) {
  return on_stream(site, stream, [&](const StreamPtr& s) -> CUresult {
    if (!holds_word(p, sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    auto work = std::make_shared<Work>();
    work->what = "write value";
    work->touches.push_back(Span{p, p + sizeof(T)});
    const std::uint64_t id = s->context->id;
    work->run = [=]() -> CUresult {
      std::uint8_t* const memory = device_bytes(p, sizeof value, id, Touch::kWrite);
      if (memory == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
      __atomic_store_n(reinterpret_cast<T*>(memory), value, __ATOMIC_RELEASE);
      return CUDA_SUCCESS;
    };
    return submit(s, std::move(work));
  });
}

template <typename T>
bool holds_true(T seen, T value, unsigned flags) {
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<T>(~(seen | value)) != 0;
    default:
      return static_cast<std::make_signed_t<T>>(seen - value) >= 0;
  }
}

template <typename T>
CUresult wait_value(Site& site, CUstream stream, CUdeviceptr p, T value, unsigned flags) {
  return on_stream(site, stream, [&](const StreamPtr& s) -> CUresult {
    if (!holds_word(p, sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    auto work = std::make_shared<Work>();
    work->what = "wait value";
    work->touches.push_back(Span{p, p + sizeof(T)});
    const std::uint64_t id = s->context->id;
    work->ready = [=] {
      const std::uint8_t* const memory = device_bytes(p, sizeof value, id, Touch::kRead);
      return memory == nullptr ||
             holds_true<T>(__atomic_load_n(reinterpret_cast<const T*>(memory), __ATOMIC_ACQUIRE), value,
                           flags);
    };
    return submit(s, std::move(work));
  });
}

// The legacy and per-thread streams have no record of their own flags.
template <typename Body>
CUresult describe(Site& site, CUstream handle, Body&& body) {
  return on_stream_anywhere(site, handle, [&](const StreamPtr& stream) { return body(*stream); });
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  const Asked asked("cuStreamCreate", 0);
  return create(SIM_SITE(cuStreamCreate), out, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  const Asked asked("cuStreamCreateWithPriority", 0);
  return create(SIM_SITE(cuStreamCreateWithPriority), out, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return in_driver(SIM_SITE(cuStreamDestroy_v2), [&]() -> CUresult {
    const StreamPtr stream = state().streams.find(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    tick();
    destroy_stream(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  const Asked asked("cuStreamSynchronize", key_of(handle));
  return on_stream(SIM_SITE(cuStreamSynchronize), handle, [&](const StreamPtr& stream) -> CUresult {
    const CUresult allowed = check_stream_wait(*stream);
    if (allowed != CUDA_SUCCESS) return allowed;
    complete(stream_target(*stream));
    return stream->context->error;
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return on_stream_anywhere(SIM_SITE(cuStreamQuery), handle, [&](const StreamPtr& stream) -> CUresult {
    const CUresult allowed = check_stream_wait(*stream);
    if (allowed != CUDA_SUCCESS) return allowed;
    stand_with_launches(*stream);
    tick_for_query();
    if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
    const VectorClock target = stream_target(*stream);
    if (!done(target)) return CUDA_ERROR_NOT_READY;
    host_saw(target);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return describe(SIM_SITE(cuStreamGetPriority), handle, [&](const Stream& stream) -> CUresult {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return describe(SIM_SITE(cuStreamGetFlags), handle, [&](const Stream& stream) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return describe(SIM_SITE(cuStreamGetId), handle, [&](const Stream& stream) -> CUresult {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = stream.id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return describe(SIM_SITE(cuStreamGetDevice), handle, [&](const Stream& stream) -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = stream.context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return describe(SIM_SITE(cuStreamGetCtx), handle, [&](const Stream& stream) -> CUresult {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = stream.context->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, context);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return on_stream(SIM_SITE(cuLaunchHostFunc), handle, [&](const StreamPtr& stream) -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto work = std::make_shared<Work>();
    work->what = "host function";
    work->host = [=] { function(data); };
    return submit(stream, std::move(work));
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned int flags) {
  return on_stream(SIM_SITE(cuStreamAddCallback), handle, [&](const StreamPtr& stream) -> CUresult {
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto work = std::make_shared<Work>();
    work->what = "stream callback";
    work->host = [=] { callback(handle, CUDA_SUCCESS, data); };
    return submit(stream, std::move(work));
  });
}

// Managed memory alone, and all of it: by its start with its size, or with 0 for "all".
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr p, size_t bytes, unsigned int) {
  return on_stream(SIM_SITE(cuStreamAttachMemAsync), handle, [&](const StreamPtr&) -> CUresult {
    const Allocation* const found = state().allocations.exact(p);
    if (found == nullptr || found->kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
    return bytes == 0 || bytes == found->size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr p, cuuint32_t value, unsigned int) {
  return write_value<std::uint32_t>(SIM_SITE(cuStreamWriteValue32_v2), stream, p, value);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr p, cuuint64_t value, unsigned int) {
  return write_value<std::uint64_t>(SIM_SITE(cuStreamWriteValue64_v2), stream, p, value);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr p, cuuint32_t value, unsigned int flags) {
  return wait_value<std::uint32_t>(SIM_SITE(cuStreamWaitValue32_v2), stream, p, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr p, cuuint64_t value, unsigned int flags) {
  return wait_value<std::uint64_t>(SIM_SITE(cuStreamWaitValue64_v2), stream, p, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr p, cuuint32_t value, unsigned int flags) {
  return cuStreamWriteValue32_v2(stream, p, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr p, cuuint64_t value, unsigned int flags) {
  return cuStreamWriteValue64_v2(stream, p, value, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr p, cuuint32_t value, unsigned int flags) {
  return cuStreamWaitValue32_v2(stream, p, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr p, cuuint64_t value, unsigned int flags) {
  return cuStreamWaitValue64_v2(stream, p, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list,
                               unsigned int) {
  for (unsigned i = 0; i < count; ++i) {
    const auto& op = list[i];
    CUresult result = CUDA_SUCCESS;
    switch (op.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        result = cuStreamWaitValue32_v2(stream, op.waitValue.address, op.waitValue.value, op.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        result =
            cuStreamWaitValue64_v2(stream, op.waitValue.address, op.waitValue.value64, op.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        result = cuStreamWriteValue32_v2(stream, op.writeValue.address, op.writeValue.value, 0);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        result = cuStreamWriteValue64_v2(stream, op.writeValue.address, op.writeValue.value64, 0);
        break;
      default:
        break;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* list,
                            unsigned int flags) {
  return cuStreamBatchMemOp_v2(stream, count, list, flags);
}

}  // extern "C"
