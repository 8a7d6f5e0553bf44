// Entry points that copy a run of bytes: between host and device, devices, contexts, and arrays.
// With unified addresses the side of a pointer is where it lies, so all forms share one body.
#include <cuda.h>

#include "sim/copies.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

CUresult copy(Site& site, CUstream stream, const Side& to, const Side& from, std::uint64_t bytes,
              Waits waits) {
  Box box;
  box.width = bytes;
  const CUresult result = on_stream_anywhere(
      site, stream, [&](const StreamPtr& s) { return submit_copy(s, site.name(), to, from, box, waits); });
  // A good copy is taken there, of a bad one a real driver says this.
  return result == CUDA_ERROR_INVALID_VALUE && thread_state.in_callback ? CUDA_ERROR_NOT_PERMITTED : result;
}

CUresult copy_peer(Site& site, CUstream stream, CUcontext to_context, CUdeviceptr to, CUcontext from_context,
                   CUdeviceptr from, std::uint64_t bytes, decltype(&submit_copy) submit) {
  Box box;
  box.width = bytes;
  return on_stream(site, stream, [&](const StreamPtr& s) {
    return submit(s, site.name(), within(to_context, linear(to)), within(from_context, linear(from)), box,
                  Waits::kAsync);
  });
}

// On the default stream.
CUresult plain_copy(Site& site, const Side& to, const Side& from, std::uint64_t bytes, Waits waits) {
  Box box;
  box.width = bytes;
  return on_stream(site, nullptr, [&](const StreamPtr& s) {
    return submit_plain_copy(s, site.name(), to, from, box, waits);
  });
}

CUresult copy_array(Site& site, CUstream stream, CUarray to, Side to_side, CUarray from, Side from_side,
                    std::uint64_t bytes, Waits waits) {
  return on_stream(site, stream, [&](const StreamPtr& s) -> CUresult {
    if (to != nullptr) to_side.array = state().arrays.find(to);
    if (from != nullptr) from_side.array = state().arrays.find(from);
    if ((to != nullptr && to_side.array == nullptr) || (from != nullptr && from_side.array == nullptr)) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    Box box;
    box.width = bytes;
    return submit_copy(s, site.name(), to_side, from_side, box, waits);
  });
}

Side at_offset(size_t offset) {
  Side side;
  side.offset = offset;
  return side;
}

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return plain_copy(SIM_SITE(cuMemcpy), linear(to), linear(from), n, Waits::kSync);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy(SIM_SITE(cuMemcpyAsync), stream, linear(to), linear(from), n, Waits::kAsync);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) {
  return copy(SIM_SITE(cuMemcpyHtoD_v2), nullptr, linear(to), linear(from), n, Waits::kSync);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, CUstream stream) {
  return copy(SIM_SITE(cuMemcpyHtoDAsync_v2), stream, linear(to), linear(from), n, Waits::kAsync);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
  return copy(SIM_SITE(cuMemcpyDtoH_v2), nullptr, linear(to), linear(from), n, Waits::kSync);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy(SIM_SITE(cuMemcpyDtoHAsync_v2), stream, linear(to), linear(from), n, Waits::kAsync);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return plain_copy(SIM_SITE(cuMemcpyDtoD_v2), linear(to), linear(from), n, Waits::kAsync);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy(SIM_SITE(cuMemcpyDtoDAsync_v2), stream, linear(to), linear(from), n, Waits::kAsync);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t n) {
  return copy_peer(SIM_SITE(cuMemcpyPeer), nullptr, to_context, to, from_context, from, n, submit_plain_copy);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t n, CUstream stream) {
  return copy_peer(SIM_SITE(cuMemcpyPeerAsync), stream, to_context, to, from_context, from, n, submit_copy);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t n) {
  return copy_array(SIM_SITE(cuMemcpyDtoA_v2), nullptr, to, at_offset(offset), nullptr, linear(from), n,
                    Waits::kAsync);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t n) {
  return copy_array(SIM_SITE(cuMemcpyAtoD_v2), nullptr, nullptr, linear(to), from, at_offset(offset), n,
                    Waits::kAsync);
}
CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t n) {
  return copy_array(SIM_SITE(cuMemcpyHtoA_v2), nullptr, to, at_offset(offset), nullptr, linear(from), n,
                    Waits::kSync);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t n) {
  return copy_array(SIM_SITE(cuMemcpyAtoH_v2), nullptr, nullptr, linear(to), from, at_offset(offset), n,
                    Waits::kSync);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t n) {
  return copy_array(SIM_SITE(cuMemcpyAtoA_v2), nullptr, to, at_offset(to_offset), from,
                    at_offset(from_offset), n, Waits::kAsync);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t n, CUstream stream) {
  return copy_array(SIM_SITE(cuMemcpyHtoAAsync_v2), stream, to, at_offset(offset), nullptr, linear(from), n,
                    Waits::kAsync);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t n, CUstream stream) {
  return copy_array(SIM_SITE(cuMemcpyAtoHAsync_v2), stream, nullptr, linear(to), from, at_offset(offset), n,
                    Waits::kAsync);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                               CUmemcpyAttributes*, size_t*, size_t, CUstream stream) {
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = copy(SIM_SITE(cuMemcpyBatchAsync_v2), stream, linear(to[i]), linear(from[i]),
                                 bytes[i], Waits::kAsync);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
