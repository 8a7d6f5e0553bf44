// Life and death of contexts. A thread's stack names a context by handle and identity: a destroyed one still
// on somebody's stack answers CONTEXT_IS_DESTROYED even after its handle was given to another context.
// The primary context is the exception: retained again after a reset, its handle works on every stack.
#include "sim/contexts.hpp"

#include <utility>
#include <vector>

#include "sim/arrays.hpp"
#include "sim/charges.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {
namespace {

ContextPtr fresh_context(int device, unsigned flags, ContextPtr whole = nullptr) {
  auto context = std::make_shared<Context>();
  context->part_of = std::move(whole);
  context->id = state().next_id++;
  context->device = device;
  context->flags = flags;
  if (context->part_of == nullptr) charge(*context, kContextCharge);
  context->legacy = create_stream(*context, StreamKind::kLegacy, 0, 0);
  return context;
}

// What a context owns goes with it; the record stays alive for whoever still holds a pointer.
void empty_context(Context& context) {
  State& s = state();
  complete(part_target(context));
  s.oracle.end_context(context.id);
  s.allocations.destroy_context(context);
  discharge(context);
  const auto streams = context.streams;
  for (const StreamPtr& stream : streams) destroy_stream(stream);
  context.per_thread.clear();
  std::vector<CUevent> events;
  s.events.each([&](const std::shared_ptr<Event>& event) {
    if (event->context_id == context.id) events.push_back(event->handle);
  });
  for (const CUevent event : events) s.events.remove(event);
  s.arrays.each([&](const std::shared_ptr<SimArray>& array) {
    if (array->context_id == context.id) release_array(*array);
  });
  context.active = false;
  s.note_usage();
}

}  // namespace

ContextPtr create_context(int device, unsigned flags, ContextPtr whole) {
  ContextPtr context = fresh_context(device, flags, std::move(whole));
  context->handle = state().contexts.insert(context);
  return context;
}

void destroy_context(const ContextPtr& context) {
  empty_context(*context);
  state().contexts.remove(context->handle);
}

ContextPtr retain_primary(int device) {
  State& s = state();
  Device& d = s.devices[static_cast<std::size_t>(device)];
  ContextPtr context = d.primary_handle != nullptr ? s.contexts.find(d.primary_handle) : nullptr;
  if (context == nullptr || !context->active) {
    ContextPtr fresh = fresh_context(device, d.primary_flags);
    fresh->primary = true;
    if (context == nullptr) {
      d.primary_handle = s.contexts.insert(fresh);
    } else {
      s.contexts.replace(d.primary_handle, fresh);
    }
    fresh->handle = d.primary_handle;
    context = std::move(fresh);
  }
  ++d.primary_refs;
  return context;
}

CUresult release_primary(int device) {
  Device& d = state().devices[static_cast<std::size_t>(device)];
  if (d.primary_refs == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--d.primary_refs > 0) return CUDA_SUCCESS;
  const ContextPtr context = state().contexts.find(d.primary_handle);
  if (context != nullptr && context->active) empty_context(*context);
  return CUDA_SUCCESS;
}

void reset_primary(int device) {
  Device& d = state().devices[static_cast<std::size_t>(device)];
  const ContextPtr context = d.primary_handle != nullptr ? state().contexts.find(d.primary_handle) : nullptr;
  if (context != nullptr && context->active) empty_context(*context);
}

CUresult current_context(ContextPtr& context) {
  if (thread_state.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const CurrentContext& top = thread_state.stack[thread_state.depth - 1];
  if (top.handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context = state().contexts.find(top.handle);
  if (context == nullptr || !context->active || (!context->primary && context->id != top.id)) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

CUresult named_context(CUcontext handle, ContextPtr& context) {
  context = state().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool push_current(const Context& context) {
  if (thread_state.depth == kContextDepth) return false;
  thread_state.stack[thread_state.depth++] = CurrentContext{context.handle, context.id};
  return true;
}

void set_current(const Context* context) {
  if (thread_state.depth > 0) --thread_state.depth;
  if (context != nullptr) push_current(*context);
}

}  // namespace cupool::sim
