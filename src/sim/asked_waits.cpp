// The driver's calls that wait, by name. Under the state mutex.
#include "sim/asked_waits.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "sim/contexts.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {
namespace {

bool is_one_of(const ObservedCall& call, std::initializer_list<const char*> names) {
  return call.name != nullptr && std::any_of(names.begin(), names.end(), [&](const char* name) {
           return std::strcmp(call.name, name) == 0;
         });
}

// Measured on an H200: these stand while a launch stands in a full queue of the context.
bool stands_beside_launches(const ObservedCall& call) {
  return is_one_of(call, {"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuStreamCreate",
                          "cuStreamCreateWithPriority", "cuStreamBeginCapture_v2"});
}

bool waits(const ObservedCall& call) {
  return is_one_of(call, {"cuMemFree_v2", "cuMemFreeHost", "cuCtxSynchronize", "cuCtxDestroy_v2",
                          "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2", "cuIpcCloseMemHandle",
                          "cuStreamSynchronize", "cuEventSynchronize"});
}

}  // namespace

VectorClock asked_target(const ObservedCall& call) {
  ContextPtr context;
  if (!waits(call)) return VectorClock();
  if (is_one_of(call, {"cuMemFree_v2"})) {
    if (call.freed_in != 0) context = state().context_by_id(call.freed_in);
  } else if (is_one_of(call, {"cuCtxDestroy_v2"})) {
    named_context(reinterpret_cast<CUcontext>(call.key), context);
  } else if (is_one_of(call, {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"})) {
    if (call.key < state().devices.size()) named_context(state().devices[call.key].primary_handle, context);
  } else if (is_one_of(call, {"cuStreamSynchronize"})) {
    if (named_context(call.current, context) != CUDA_SUCCESS) return VectorClock();
    const StreamPtr stream = find_stream(*context, reinterpret_cast<CUstream>(call.key));
    return stream != nullptr ? stream_target(*stream) : VectorClock();
  } else if (is_one_of(call, {"cuEventSynchronize"})) {
    const auto event = state().events.find(reinterpret_cast<CUevent>(call.key));
    return event != nullptr && event->record != nullptr ? event->record->clock : VectorClock();
  } else {
    named_context(call.current, context);
  }
  return context != nullptr ? context_target(*context) : VectorClock();
}

std::uint64_t context_of(const ObservedCall& call) {
  if (call.freed_in != 0) return call.freed_in;
  ContextPtr context;
  return named_context(call.current, context) == CUDA_SUCCESS ? context->whole_id() : 0;
}

bool stands_by_itself(const ObservedCall& call) {
  if (!stands_beside_launches(call)) return false;
  const std::uint64_t context = context_of(call);
  return standing_in(context) != nullptr || state().added_waits.is_freeing(context);
}

bool would_return(const ObservedCall& call) {
  if (stands_beside_launches(call)) return context_of(call) != 0 && !stands_by_itself(call);
  if (is_one_of(call, {"cuMemGetInfo_v2", "cuIpcGetMemHandle", "cuStreamDestroy_v2"})) return true;
  // A default stream's handle means another stream in each thread.
  const bool unknown_stream = is_one_of(call, {"cuStreamSynchronize"}) &&
                              state().streams.find(reinterpret_cast<CUstream>(call.key)) == nullptr;
  const bool unknown_memory = is_one_of(call, {"cuMemFree_v2"}) && call.freed_in == 0;
  return waits(call) && !unknown_stream && !unknown_memory && done(asked_target(call));
}

}  // namespace cupool::sim
