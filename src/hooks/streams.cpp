// The program makes a stream, waits for a context or a stream, asks whether it is done, or destroys it. A
// wait that succeeded proves that work is finished; a stream that is destroyed can come back under the same
// handle.
#include "config/options.hpp"
#include "cuda/live.hpp"
#include "hooks/captures.hpp"
#include "hooks/forward.hpp"
#include "hooks/submit.hpp"

using cupool::cuda::real;
using cupool::hooks::DefaultStream;
using cupool::hooks::forward;
using cupool::hooks::is_serving;
using cupool::hooks::lane_of;
using cupool::hooks::named;
using cupool::hooks::pools;
using cupool::order::Lane;
using cupool::stats::Counter;

namespace {

// What the program's own wait proves is as good as a fence of ours.
template <typename Call>
CUresult waits(Lane lane, Call&& call) {
  if (!is_serving()) return call();
  const cupool::order::Epoch epoch = pools.order().begin_wait(lane);
  const CUresult result = call();
  pools.order().end_wait(epoch, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS && cupool::config::options().decay_ms != 0) pools.decay();
  return result;
}

template <typename Call>
CUresult creates(CUstream* stream, CUcontext context, Call&& call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && stream != nullptr && is_serving()) cupool::cuda::live.add(*stream, context);
  return result;
}

CUcontext current() {
  CUcontext context = nullptr;
  return real.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

template <typename Call>
CUresult destroys(CUstream stream, Call&& call) {
  if (is_serving() && stream != nullptr) {
    cupool::cuda::live.remove(stream);
    if (pools.order().is_capturing()) cupool::hooks::capture_ended(stream);
    pools.order().destroy_stream(lane_of(stream));
  }
  return call();
}

}  // namespace

CUresult cuCtxSynchronize() {
  return waits(Lane::kMany, [] { return forward(Counter::synchronisations, real.cuCtxSynchronize); });
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  return waits(Lane::kMany,
               [&] { return forward(Counter::synchronisations, real.cuCtxSynchronize_v2, context); });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return waits(lane_of(named(stream, DefaultStream::kLegacy)),
               [&] { return forward(Counter::synchronisations, real.cuStreamSynchronize, stream); });
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return waits(lane_of(named(stream, DefaultStream::kPerThread)),
               [&] { return forward(Counter::synchronisations, real.cuStreamSynchronize_ptsz, stream); });
}

CUresult cuStreamQuery(CUstream stream) {
  return waits(lane_of(named(stream, DefaultStream::kLegacy)),
               [&] { return forward(real.cuStreamQuery, stream); });
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
  return waits(lane_of(named(stream, DefaultStream::kPerThread)),
               [&] { return forward(real.cuStreamQuery_ptsz, stream); });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return creates(stream, current(), [&] { return forward(real.cuStreamCreate, stream, flags); });
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return creates(stream, current(),
                 [&] { return forward(real.cuStreamCreateWithPriority, stream, flags, priority); });
}

CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned flags, int priority) {
  return creates(stream, reinterpret_cast<CUcontext>(green),
                 [&] { return forward(real.cuGreenCtxStreamCreate, stream, green, flags, priority); });
}

CUresult cuStreamDestroy(CUstream stream) {
  return destroys(stream, [&] { return forward(real.cuStreamDestroy, stream); });
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return destroys(stream, [&] { return forward(real.cuStreamDestroy_v2, stream); });
}
