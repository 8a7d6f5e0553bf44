// See live.hpp.
#include "cuda/live.hpp"

#include <algorithm>

#include "base/after_fork.hpp"
#include "base/own_call.hpp"

namespace cupool::cuda {

constinit Live live;
CUPOOL_AFTER_FORK(live_after_fork, [] { live.forget_after_fork(); });

namespace {

// The driver reports this for the legacy stream while a blocking stream of the current context captures.
bool captures(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = real.cuStreamIsCapturing(stream, &status);
  return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
         (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

bool legacy_stream_captures(CUcontext context) {
  if (real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return false;
  const bool found = captures(CU_STREAM_LEGACY) || captures(CU_STREAM_PER_THREAD);
  real.cuCtxPopCurrent_v2(&context);
  return found;
}

}  // namespace

void Live::add(CUcontext context) {
  Guard hold(lock_);
  auto& all = contexts_.value;
  if (std::find(all.begin(), all.end(), context) == all.end()) all.push_back(context);
}

void Live::add(CUstream stream, CUcontext context) {
  Guard hold(lock_);
  streams_.value.push_back({stream, context});
}

void Live::remove(CUstream stream) {
  Guard hold(lock_);
  std::erase_if(streams_.value, [&](const Stream& one) { return one.stream == stream; });
}

Live::Taken Live::take(CUcontext context) {
  Taken taken{context, {}};
  Guard hold(lock_);
  for (const Stream& one : streams_.value) {
    if (one.context == context) taken.streams.push_back(one.stream);
  }
  std::erase_if(streams_.value, [&](const Stream& one) { return one.context == context; });
  std::erase(contexts_.value, context);
  return taken;
}

void Live::put_back(const Taken& taken) {
  add(taken.context);
  for (CUstream stream : taken.streams) add(stream, taken.context);
}

std::vector<CUcontext> Live::contexts() {
  Guard hold(lock_);
  return contexts_.value;
}

bool Live::may_be_capturing() {
  if (!has_untracked_work_.load(std::memory_order_relaxed)) [[likely]]
    return false;
  const OwnCall guard;
  Guard hold(lock_);
  return std::any_of(streams_.value.begin(), streams_.value.end(),
                     [](const Stream& one) { return captures(one.stream); }) ||
         std::any_of(contexts_.value.begin(), contexts_.value.end(), legacy_stream_captures);
}

void Live::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  contexts_.value.clear();
  streams_.value.clear();
}

}  // namespace cupool::cuda
