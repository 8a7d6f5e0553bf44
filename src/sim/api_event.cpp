// Entry points for events, on one stream and on a whole context. An event holds the clock of its last
// recording; a query that finds it reached is something the host has seen.
#include <cuda.h>

#include <algorithm>

#include "sim/capture.hpp"
#include "sim/entry.hpp"
#include "sim/options.hpp"

using namespace cupool::sim;

namespace {

using EventPtr = std::shared_ptr<Event>;

constexpr int kContextEventsSince = 12050;

template <typename Body>
CUresult with_event(Site& site, CUevent handle, Body&& body) {
  return in_driver(site, [&]() -> CUresult {
    const EventPtr event = state().events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(event);
  });
}

CUresult record(const StreamPtr& stream, const EventPtr& event) {
  if (event->context_id != stream->context->id) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult open = check_submission(*stream);
  if (open != CUDA_SUCCESS) return open;
  if (stream->capture != nullptr) return capture_record(*stream, *event);
  auto fresh = std::make_shared<EventRecord>();
  auto work = std::make_shared<Work>();
  work->what = "event record";
  work->mark = true;
  work->run = [fresh] {
    fresh->time_ns = state().now_ns;
    return CUDA_SUCCESS;
  };
  enqueue(stream, std::move(work));
  fresh->clock = stream->clock;
  event->record = std::move(fresh);
  event->recorded_in_capture = false;
  return CUDA_SUCCESS;
}

CUresult record(Site& site, CUevent handle, CUstream stream_handle) {
  return on_stream_anywhere(site, stream_handle, [&](const StreamPtr& stream) -> CUresult {
    const EventPtr event = state().events.find(handle);
    return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : record(stream, event);
  });
}

CUresult sticky_error(const Event& event) {
  const ContextPtr context = state().context_by_id(event.context_id);
  return context != nullptr ? context->error : CUDA_SUCCESS;
}

// Queries and waits: potentially unsafe while something captures.
CUresult check_event_wait(const Event& event) {
  const CUresult allowed = check_unsafe_call();
  if (allowed != CUDA_SUCCESS) return allowed;
  if (event.recorded_in_capture) return CUDA_ERROR_CAPTURED_EVENT;
  return sticky_error(event);
}

template <typename Body>
CUresult with_context_event(Site& site, CUcontext handle, CUevent event_handle, Body&& body) {
  return in_driver(site, [&]() -> CUresult {
    if (options().driver_version < kContextEventsSince) return CUDA_ERROR_NOT_SUPPORTED;
    ContextPtr context;
    const CUresult found = handle == nullptr ? current_context(context) : named_context(handle, context);
    if (found != CUDA_SUCCESS) return found;
    tick();
    if (context->error != CUDA_SUCCESS) return context->error;
    const EventPtr event = state().events.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult allowed = check_context_call(*context);
    return allowed != CUDA_SUCCESS ? allowed : body(*context, event);
  });
}

void context_wait(Context& context, const EventRecord& record) {
  const Origin origin = present_origin();
  if (!origin.added) {
    context.floor.join(record.clock);
    return;
  }
  state().added_waits.context_waits(context, record);
  context.floor.join(record.clock.added());
  auto& told = context.added_waits;
  told.erase(std::remove_if(told.begin(), told.end(), [](const auto& one) { return done(one.first); }),
             told.end());
  told.emplace_back(record.clock, "cuCtxWaitEvent " + describe(origin) + " for an event recorded " +
                                      describe(record.origin));
}

CUresult elapsed(Site& site, float* ms, CUevent start, CUevent end) {
  return in_driver(site, [&]() -> CUresult {
    const EventPtr a = state().events.find(start);
    const EventPtr b = state().events.find(end);
    if (a == nullptr || b == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (ms == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (a->record == nullptr || b->record == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!done(a->record->clock) || !done(b->record->clock)) return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>(static_cast<double>(b->record->time_ns) -
                             static_cast<double>(a->record->time_ns)) /
          1e6f;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  return in_context(SIM_SITE(cuEventCreate), [&](Context& context) -> CUresult {
    constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (out == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
      return CUDA_ERROR_INVALID_VALUE;
    stand_beside_launches(context);
    auto event = std::make_shared<Event>();
    event->context_id = context.id;
    event->flags = flags;
    event->handle = state().events.insert(event);
    *out = event->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return with_event(SIM_SITE(cuEventDestroy_v2), handle, [&](const EventPtr&) {
    state().events.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  const Asked asked("cuEventRecord", key_of(event));
  return record(SIM_SITE(cuEventRecord), event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int) {
  return record(SIM_SITE(cuEventRecordWithFlags), event, stream);
}

CUresult cuEventQuery(CUevent handle) {
  return with_event(SIM_SITE(cuEventQuery), handle, [&](const EventPtr& event) -> CUresult {
    CUresult result = check_event_wait(*event);
    if (result != CUDA_SUCCESS) return result;
    const auto record = event->record;
    if (record == nullptr) return CUDA_SUCCESS;
    tick_for_query();
    result = sticky_error(*event);
    if (result != CUDA_SUCCESS) return result;
    if (!done(record->clock)) return CUDA_ERROR_NOT_READY;
    host_saw(record->clock);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  const Asked asked("cuEventSynchronize", key_of(handle));
  return with_event(SIM_SITE(cuEventSynchronize), handle, [&](const EventPtr& event) -> CUresult {
    const CUresult allowed = check_event_wait(*event);
    if (allowed != CUDA_SUCCESS) return allowed;
    const auto record = event->record;
    if (record != nullptr) complete(record->clock);
    return sticky_error(*event);
  });
}

CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  return elapsed(SIM_SITE(cuEventElapsedTime), ms, start, end);
}

CUresult cuEventElapsedTime_v2(float* ms, CUevent start, CUevent end) {
  return elapsed(SIM_SITE(cuEventElapsedTime_v2), ms, start, end);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  const Asked asked("cuStreamWaitEvent", key_of(event_handle));
  return on_stream_anywhere(SIM_SITE(cuStreamWaitEvent), handle, [&](const StreamPtr& stream) -> CUresult {
    const EventPtr event = state().events.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (event->recorded_in_capture || (stream->capture != nullptr && event->record != nullptr)) {
      return capture_wait(stream, *event);
    }
    if (event->record == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
    const CUresult open = check_submission(*stream);
    if (open != CUDA_SUCCESS) return open;
    if (stream->graphs_arriving != 0) return CUDA_SUCCESS;  // lost, see Arrival
    // What counts is the record at the moment when the call is made, not when it begins to stand.
    stand_with_launches(*stream);
    const EventRecord& record = *event->record;
    const Origin origin = present_origin();
    auto work = std::make_shared<Work>();
    work->what = "event wait";
    work->mark = true;
    if (origin.added) {
      work->what += " made " + describe(origin) + " for an event recorded " + describe(record.origin);
      work->library = true;
      state().added_waits.stream_waits(*stream, record);
    }
    enqueue(stream, std::move(work), origin.added ? record.clock.added() : record.clock);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxRecordEvent(CUcontext context_handle, CUevent event_handle) {
  const Asked asked("cuCtxRecordEvent", key_of(event_handle));
  return with_context_event(SIM_SITE(cuCtxRecordEvent), context_handle, event_handle,
                            [](Context& context, const EventPtr& event) -> CUresult {
                              if (event->context_id != context.id) return CUDA_ERROR_INVALID_HANDLE;
                              auto fresh = std::make_shared<EventRecord>();
                              fresh->clock = context_target(context);
                              fresh->time_ns = state().now_ns;
                              event->record = std::move(fresh);
                              event->recorded_in_capture = false;
                              ++state().counters.context_records;
                              return CUDA_SUCCESS;
                            });
}

CUresult cuCtxWaitEvent(CUcontext context_handle, CUevent event_handle) {
  const Asked asked("cuCtxWaitEvent", key_of(event_handle));
  return with_context_event(SIM_SITE(cuCtxWaitEvent), context_handle, event_handle,
                            [](Context& context, const EventPtr& event) -> CUresult {
                              if (event->recorded_in_capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                              stand_beside_launches(context);
                              if (event->record != nullptr) context_wait(context, *event->record);
                              ++state().counters.context_waits;
                              return CUDA_SUCCESS;
                            });
}

}  // extern "C"
