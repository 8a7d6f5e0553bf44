// Streams are created, synchronised, queried and destroyed; contexts are synchronised. A wait that succeeded
// proves that work is finished; the handle of a destroyed stream can be reused.
#include "config/options.hpp"
#include "cuda/live.hpp"
#include "hooks/state/capturing_streams.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/state/green_contexts.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/submit.hpp"

namespace cupool::hooks {

using cuda::real;
using order::Lane;
using order::Timeline;

namespace {

using Asks = Timeline::Asks;

// A wait by the program itself proves as much as a fence of ours.
template <typename Call>
CUresult waits(Timeline* order, Lane lane, Call&& call, Asks asks = Asks::kWait) {
  if (order == nullptr) return call();
  const order::Epoch epoch = order->begin_wait(lane, trace::Ordering::kWaitBegins, asks);
  const CUresult result = call();
  order->end_wait(epoch, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS && config::options().decay_ms != 0) memory.idle().decay();
  return result;
}

template <typename Call>
CUresult waits_for_context(driver::Context context, Call&& call) {
  return waits(is_serving() ? memory.order().find(context) : nullptr, Lane::kMany, call);
}

template <typename Call>
CUresult waits_for_stream(CUstream stream, Call&& call, Asks asks = Asks::kWait) {
  if (!is_serving()) return call();
  return waits(timeline_of(stream), lane_of(stream), call, asks);
}

template <typename Call>
CUresult creates(CUstream* stream, CUcontext context, Call&& call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && stream != nullptr && is_serving()) cuda::live.add(*stream, context);
  return result;
}

CUcontext current() {
  CUcontext context = nullptr;
  return real.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// The current context; null also for a green one, whose work is only a part of that of the context which owns
// its memory.
driver::Context whole_context() {
  const driver::Context owner = current_context();
  const bool is_part = green_contexts.any() && reinterpret_cast<driver::Context>(current()) != owner;
  return is_part ? nullptr : owner;
}

template <typename Call>
CUresult destroys(CUstream stream, Call&& call) {
  if (is_serving() && stream != nullptr) {
    cuda::live.remove(stream);
    if (memory.order().is_capturing()) capture_ended(stream);
    if (Timeline* const order = timeline_of(stream)) order->destroy_stream(lane_of(stream));
  }
  return call();
}

}  // namespace

CUresult cuCtxSynchronize() {
  return waits_for_context(whole_context(), [] { return forward_wait(nullptr, real.cuCtxSynchronize); });
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  // Null means the current context.
  const auto meant = context != nullptr ? reinterpret_cast<driver::Context>(context) : whole_context();
  return waits_for_context(meant, [&] { return forward_wait(nullptr, real.cuCtxSynchronize_v2, context); });
}

CUresult cuStreamSynchronize(CUstream stream) {
  const CUstream meant = named(stream, DefaultStream::kLegacy);
  return waits_for_stream(meant, [&] { return forward_wait(meant, real.cuStreamSynchronize, stream); });
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  const CUstream meant = named(stream, DefaultStream::kPerThread);
  return waits_for_stream(meant, [&] { return forward_wait(meant, real.cuStreamSynchronize_ptsz, stream); });
}

CUresult cuStreamQuery(CUstream stream) {
  return waits_for_stream(
      named(stream, DefaultStream::kLegacy), [&] { return forward(real.cuStreamQuery, stream); },
      Asks::kQuery);
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
  return waits_for_stream(
      named(stream, DefaultStream::kPerThread), [&] { return forward(real.cuStreamQuery_ptsz, stream); },
      Asks::kQuery);
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

}  // namespace cupool::hooks
