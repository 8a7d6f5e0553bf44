// The order rules of CUDA streams, written as joins of clocks. The legacy stream orders with blocking streams
// both ways and never with non-blocking ones; a context wait lies under every stream, later ones included.
// Under the state mutex.
#include "sim/streams.hpp"

#include <algorithm>
#include <utility>

#include "sim/capture.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

// So many pieces of work, records and waits not counted, make the submitting call wait (measured on an H200).
constexpr std::size_t kQueueDepth = 1020;

void make_room(Stream& stream, const Work& work) {
  stand_with_launches(stream);
  if (work.mark || stream.pieces < kQueueDepth) return;
  ++stream.standing;
  stand_until(stream, [&] { return stream.pieces < kQueueDepth; });
  --stream.standing;
}

// A timeline may be used again only when the host has seen all of it: else the newcomer would seem ordered
// after the old stream's work.
TimelineId take_timeline() {
  State& s = state();
  for (std::size_t i = 0; i < s.timelines.size(); ++i) {
    Timeline& t = s.timelines[i];
    const auto id = static_cast<TimelineId>(i);
    if (!t.in_use && t.completed == t.submitted && s.host.at(id) >= t.submitted) {
      t.in_use = true;
      t.broken = false;
      return id;
    }
  }
  s.timelines.emplace_back().in_use = true;
  return static_cast<TimelineId>(s.timelines.size() - 1);
}

}  // namespace

StreamPtr create_stream(Context& context, StreamKind kind, unsigned flags, int priority) {
  State& s = state();
  auto stream = std::make_shared<Stream>();
  stream->id = s.next_id++;
  stream->timeline = take_timeline();
  s.timelines[stream->timeline].library = kind == StreamKind::kUser && present_origin().added;
  s.timelines[stream->timeline].context = context.whole_id();
  stream->context = &context;
  stream->kind = kind;
  stream->flags = flags;
  stream->priority = priority;
  context.streams.push_back(stream);
  if (kind == StreamKind::kUser) {
    stream->handle = s.streams.insert(stream);
    ++s.counters.streams_created;
  }
  return stream;
}

void destroy_stream(const StreamPtr& stream) {
  State& s = state();
  leave_capture(*stream);
  if (stream->handle != nullptr) s.streams.remove(stream->handle);
  stream->destroyed = true;
  if (stream->queue.empty()) retire_stream(stream);
}

StreamPtr find_stream(Context& context, CUstream handle) {
  const bool per_thread =
      handle == CU_STREAM_PER_THREAD || (handle == nullptr && thread_state.per_thread_default);
  if (per_thread) {
    StreamPtr& own = context.per_thread[thread_id()];
    if (own == nullptr) own = create_stream(context, StreamKind::kPerThread, 0, 0);
    return own;
  }
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context.legacy;
  return state().streams.find(handle);
}

VectorClock context_floor(const Context& context) {
  VectorClock floor = context.floor;
  if (context.part_of != nullptr) floor.join(context.part_of->floor);
  return floor;
}

VectorClock before_next(const Stream& stream) {
  const Context& context = *stream.context;
  VectorClock after = stream.clock;
  after.join(state().host);
  after.join(context_floor(context));
  if (stream.kind == StreamKind::kLegacy) {
    for (const StreamPtr& other : context.streams) {
      if (other->blocking()) after.join(other->clock);
    }
    after.join(context.gone_blocking);
  } else if (stream.blocking()) {
    after.join(context.legacy->clock);
  }
  return after;
}

namespace {

// Measured on an H200: a programmatic launch begins when its predecessor lets it, and jumps over waits that
// lead back to its own stream; it keeps context waits, and waits for other streams. The scheduler runs a
// stream's operations one after the other all the same: it is the oracle that must know.
VectorClock overlapping_after(const Stream& stream) {
  VectorClock after = stream.front;
  after.join(stream.firm);
  after.join(state().host);
  after.join(context_floor(*stream.context));
  return after;
}

void note_library_wait(Timeline& timeline, std::uint64_t position, std::uint64_t seen) {
  auto& waits = timeline.library_waits;
  while (!waits.empty() && waits.front() <= seen) waits.pop_front();
  waits.push_back(position);
}

}  // namespace

void enqueue(const StreamPtr& stream, WorkPtr work, const VectorClock& also_after) {
  State& s = state();
  // First, because waiting may let other threads submit: the clocks below must be of one moment.
  make_room(*stream, *work);
  VectorClock after = before_next(*stream);
  after.join(also_after);
  Timeline& timeline = s.timelines[stream->timeline];
  const std::uint64_t position = ++timeline.submitted;
  if (work->library) note_library_wait(timeline, position, s.host.at(stream->timeline));
  if (also_after.at(stream->timeline) <= s.host.at(stream->timeline)) stream->firm.join(also_after);
  const VectorClock judged = work->overlaps ? overlapping_after(*stream) : after;
  if (!work->mark) stream->front = judged;
  stream->clock = after;
  stream->clock.raise(stream->timeline, position);
  stream->context->submitted.join(stream->clock);
  ++s.counters.operations;
  if (work->kernel) ++s.counters.launches;
  s.oracle.operation(*stream, position, judged, *work, s.host);
  s.added_waits.submitted(*stream, position, *work, after);
  if (stream->queue.empty()) s.busy.push_back(stream);
  const unsigned steps = work->steps;
  if (!work->mark) ++stream->pieces;
  stream->queue.push_back(Op{std::move(work), std::move(after), steps});
  ++s.queued;
  ++s.progress;
}

CUresult submit(const StreamPtr& stream, WorkPtr work) {
  const CUresult open = check_submission(*stream);
  if (open != CUDA_SUCCESS) return open;
  if (stream->capture != nullptr) return capture_work(*stream, std::move(work));
  enqueue(stream, std::move(work));
  return CUDA_SUCCESS;
}

VectorClock stream_target(const Stream& stream) {
  VectorClock target = stream.clock;
  if (stream.kind == StreamKind::kLegacy) {
    for (const StreamPtr& other : stream.context->streams) {
      if (other->blocking()) target.join(other->clock);
    }
    target.join(stream.context->gone_blocking);
  }
  return target;
}

void order_after(Stream& stream, const VectorClock& clock) {
  stream.clock.join(clock);
  stream.context->submitted.join(clock);
}

VectorClock part_target(const Context& context) {
  VectorClock target = context_floor(context);
  target.join(context.submitted);
  return target;
}

VectorClock context_target(const Context& context) {
  VectorClock target = part_target(context);
  state().contexts.each([&](const std::shared_ptr<Context>& part) {
    if (part->part_of.get() == &context) target.join(part_target(*part));
  });
  return target;
}

}  // namespace cupool::sim
