// What every entry point does first, in one place: injected faults, "is the driver up", the lock, the current
// context, its sticky error, and a chance for the device to move on. An entry point is its argument checks
// and a lambda. SIM_SITE names the entry point for faults; the body runs under the state mutex.
#pragma once

#include <cuda.h>

#include <mutex>
#include <utility>

#include "sim/contexts.hpp"
#include "sim/faults.hpp"
#include "sim/managed.hpp"
#include "sim/origin.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {

// Who may make the call. Host functions may not call the driver: the real one answers so, but for questions
// about a stream that is named and for copies and memsets on it.
enum class From { kProgram, kHostFunctionToo };

inline CUresult driver_up(From from) {
  if (driver_life.load(std::memory_order_acquire) != Life::kRunning) return CUDA_ERROR_NOT_INITIALIZED;
  return thread_state.in_callback && from == From::kProgram ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

// The state mutex. What the host did to managed memory before this call comes before all this call does.
class Inside {
 public:
  Inside() : lock_(state().mutex) { tell_host_touches(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  std::lock_guard<StateMutex> lock_;
};

// The driver must be initialised; no context needed.
template <typename Body>
CUresult in_driver(Site& site, Body&& body, From from = From::kProgram) {
  CUresult after = CUDA_SUCCESS;
  CUresult refused = site.enter(&after);
  if (refused == CUDA_ERROR_OUT_OF_MEMORY) note_refusal();
  if (refused == CUDA_SUCCESS) refused = driver_up(from);
  if (refused != CUDA_SUCCESS) return refused;
  const Inside lock;
  thread_state.call = site.name();
  const CUresult result = body();
  return result == CUDA_SUCCESS ? after : result;
}

// A usable current context is needed: body(Context&).
template <typename Body>
CUresult in_context(Site& site, Body&& body) {
  return in_driver(site, [&]() -> CUresult {
    ContextPtr context;
    const CUresult found = current_context(context);
    if (found != CUDA_SUCCESS) return found;
    tick();
    if (context->error != CUDA_SUCCESS) return context->error;
    return body(*context);
  });
}

// With the stream a handle means: body(const StreamPtr&). One that the program made needs no current context,
// but a broken one is in the way.
template <typename Body>
CUresult on_stream(Site& site, CUstream handle, Body&& body, From from = From::kProgram) {
  const auto find_and_run = [&]() -> CUresult {
    StreamPtr stream = state().streams.find(handle);
    ContextPtr context;
    const CUresult found = current_context(context);
    if (found != CUDA_SUCCESS && stream == nullptr) return found;
    if (!thread_state.in_callback) tick();
    if (context != nullptr && context->error != CUDA_SUCCESS) return context->error;
    if (stream == nullptr) stream = find_stream(*context, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
    return body(stream);
  };
  const bool is_made = handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
  return in_driver(site, find_and_run, is_made ? from : From::kProgram);
}

template <typename Body>
CUresult on_stream_anywhere(Site& site, CUstream handle, Body&& body) {
  return on_stream(site, handle, body, From::kHostFunctionToo);
}

// Marks a call as coming through a per-thread-default-stream entry point.
class PerThreadScope {
 public:
  PerThreadScope() : before_(std::exchange(thread_state.per_thread_default, true)) {}
  ~PerThreadScope() { thread_state.per_thread_default = before_; }
  PerThreadScope(const PerThreadScope&) = delete;
  PerThreadScope& operator=(const PerThreadScope&) = delete;

 private:
  bool before_;
};

}  // namespace cupool::sim
