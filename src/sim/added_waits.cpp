// Comparing clocks, and telling the story. A call of the application that waits by itself (a free, a
// synchronise, the end of a context) allows the library every wait that is no longer. Under the state mutex.
#include "sim/added_waits.hpp"

#include <algorithm>
#include <cstring>

#include "sim/contexts.hpp"
#include "sim/options.hpp"
#include "sim/origin.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {
namespace {

constexpr std::size_t kStoriesKept = 8;

StreamPtr stream_on(TimelineId timeline) {
  StreamPtr found;
  state().contexts.each([&](const ContextPtr& context) {
    for (const StreamPtr& stream : context->streams) {
      if (stream->timeline == timeline) found = stream;
    }
  });
  return found;
}

bool is(const ObservedCall& call, const char* name) { return std::strcmp(call.name, name) == 0; }

// The newest operation of the program's own up to there. What the library's waits wait for is in every clock
// by itself; they run nothing, and a moment in which all of that is over may come before one is made.
std::uint64_t newest_of_program(const Timeline& timeline, std::uint64_t position) {
  const auto& waits = timeline.library_waits;
  while (std::binary_search(waits.begin(), waits.end(), position)) --position;
  return position;
}

// What the present call of the application waits for by itself.
VectorClock own_target() {
  const ObservedCall& call = observed_call;
  VectorClock target;
  if (call.name == nullptr) return target;
  ContextPtr context;
  if (is(call, "cuMemFree_v2") && call.freed_in != 0) {
    context = state().context_by_id(call.freed_in);
  } else if (is(call, "cuCtxDestroy_v2")) {
    named_context(reinterpret_cast<CUcontext>(call.key), context);
  } else if (is(call, "cuDevicePrimaryCtxRelease_v2") || is(call, "cuDevicePrimaryCtxReset_v2")) {
    if (call.key < state().devices.size()) named_context(state().devices[call.key].primary_handle, context);
  } else if (is(call, "cuCtxSynchronize") || is(call, "cuMemFreeHost") || is(call, "cuIpcCloseMemHandle")) {
    current_context(context);
  } else if (is(call, "cuStreamSynchronize")) {
    if (current_context(context) != CUDA_SUCCESS) return target;
    const StreamPtr stream = find_stream(*context, reinterpret_cast<CUstream>(call.key));
    return stream != nullptr ? stream_target(*stream) : target;
  } else if (is(call, "cuEventSynchronize")) {
    const auto event = state().events.find(reinterpret_cast<CUevent>(call.key));
    return event != nullptr && event->record != nullptr ? event->record->clock : target;
  }
  return context != nullptr ? context_target(*context) : target;
}

}  // namespace

std::string describe_stream(const Stream& stream) {
  const char* kind = "stream ";
  if (stream.kind == StreamKind::kLegacy) kind = "legacy stream ";
  if (stream.kind == StreamKind::kPerThread) kind = "per-thread stream ";
  if (stream.kind == StreamKind::kHidden) kind = "graph branch ";
  if (stream.kind == StreamKind::kUser && !stream.blocking()) kind = "non-blocking stream ";
  std::string text(kind);
  text += '#';
  text += std::to_string(stream.id);
  if (stream.destroyed) text += " (destroyed)";
  return text;
}

std::string describe_position(TimelineId timeline, std::uint64_t position) {
  const StreamPtr stream = stream_on(timeline);
  std::string text = "operation " + std::to_string(position);
  if (stream == nullptr) return text + " of a stream that is gone";
  const std::uint64_t first = state().timelines[timeline].completed + 1;
  if (position >= first && position - first < stream->queue.size()) {
    text += " (" + stream->queue[position - first].work->what + ")";
  }
  return text + " of " + describe_stream(*stream);
}

void AddedWaits::freed(const VectorClock& target, std::uint64_t thread) {
  freed_any_.join(target);
  freed_by_[thread].join(target);
}

VectorClock AddedWaits::allowed() const {
  // A free or a synchronisation under way waits for this much itself, whoever does it in its place.
  VectorClock result = own_target();
  result.join(done_);
  if (options().waits == AllowedWaits::kExact) {
    const auto found = freed_by_.find(thread_id());
    if (found != freed_by_.end()) result.join(found->second);
    return result;
  }
  result.join(freed_any_);
  for (const std::uint64_t id : frees_under_way_) {
    const ContextPtr context = state().context_by_id(id);
    if (context != nullptr) result.join(context_target(*context));
  }
  return result;
}

void AddedWaits::judge(const std::string& who, const std::string& what, const VectorClock& target,
                       const VectorClock& base) {
  const VectorClock free_to_wait_for = allowed();
  const VectorClock& seen = state().host;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto id = static_cast<TimelineId>(i);
    const std::uint64_t position = newest_of_program(state().timelines[i], target.at(id));
    if (position <= base.at(id) || position <= seen.at(id) || position <= free_to_wait_for.at(id)) continue;
    // Its own streams run nothing of the program's; what they wait for is in the clock by itself.
    if (state().timelines[i].library) continue;
    ++count_;
    if (stories_.size() >= kStoriesKept) return;
    std::string story = who;
    story.append(" is made to wait for\n      ").append(describe_position(id, position));
    story.append(",\n      which was submitted after the last free");
    story.append(options().waits == AllowedWaits::kExact ? " of that thread: " : ": ").append(what);
    stories_.push_back(std::move(story));
    return;
  }
}

void AddedWaits::stream_waits(const Stream& stream, const EventRecord& record) {
  if (!observed_call.added || options().waits == AllowedWaits::kAll) return;
  // Work of the program that waits for such a stream in turn is judged by what the stream waited for.
  if (state().timelines[stream.timeline].library) return;
  judge(describe_stream(stream),
        "cuStreamWaitEvent " + describe(present_origin()) + ", for an event recorded " +
            describe(record.origin),
        record.clock, before_next(stream));
}

void AddedWaits::context_waits(const Context& context, const EventRecord& record) {
  if (!observed_call.added || options().waits == AllowedWaits::kAll) return;
  judge("all later work of context " + std::to_string(context.id),
        "cuCtxWaitEvent " + describe(present_origin()) + ", for an event recorded " + describe(record.origin),
        record.clock, context.floor);
}

void AddedWaits::host_waits(const char* call, const VectorClock& target) {
  // An allocation that the device refused may wait: the program would have been refused.
  if (!observed_call.added || observed_call.refused || options().waits == AllowedWaits::kAll) return;
  judge("thread " + std::to_string(thread_id()), std::string(call) + " " + describe(present_origin()), target,
        VectorClock());
}

bool AddedWaits::is_longer_than_asked(const VectorClock& target) const {
  if (!observed_call.added) return false;
  VectorClock asked = own_target();
  asked.join(state().host);
  return !target.within(asked);
}

}  // namespace cupool::sim
