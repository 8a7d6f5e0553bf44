// Steps, directed and random. A wait mostly drives what it needs and leaves other streams lagging, which is
// where careless reuse shows; now and then it lets anything run. Under the state mutex.
#include "sim/scheduler.hpp"

#include <algorithm>
#include <utility>

#include "sim/hangs.hpp"
#include "sim/host_functions.hpp"
#include "sim/memory_pools.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {
namespace {

constexpr std::uint64_t kStepNs = 100;

bool is_behind(TimelineId id, const VectorClock& clock) {
  const State& s = state();
  return s.timelines[id].completed < (s.without_added_waits ? clock.own_at(id) : clock.at(id));
}

bool reached(const VectorClock& clock) {
  for (std::size_t i = 0; i < clock.size(); ++i) {
    if (is_behind(static_cast<TimelineId>(i), clock)) return false;
  }
  return true;
}

bool runnable(Stream& stream) {
  if (stream.queue.empty() || stream.in_host_function) return false;
  const Op& head = stream.queue.front();
  // Where hundreds of streams wait, most wait for what they waited for at the last look.
  if (is_behind(stream.waits_for, head.after)) return false;
  for (std::size_t i = 0; i < head.after.size(); ++i) {
    const auto id = static_cast<TimelineId>(i);
    if (!is_behind(id, head.after)) continue;
    stream.waits_for = id;
    return false;
  }
  return head.work->ready == nullptr || stream.context->error != CUDA_SUCCESS || head.work->ready();
}

void finish_head(const StreamPtr& stream) {
  State& s = state();
  if (!stream->queue.front().work->mark) --stream->pieces;
  stream->queue.pop_front();
  --s.queued;
  ++s.timelines[stream->timeline].completed;
  if (!stream->queue.empty()) return;
  s.busy.erase(std::find(s.busy.begin(), s.busy.end(), stream));
  if (stream->destroyed) retire_stream(stream);
}

void fail(Context& context, CUresult error) {
  context.error = error;
  for (const StreamPtr& stream : context.streams) state().timelines[stream->timeline].broken = true;
}

void step(const StreamPtr& stream) {
  State& s = state();
  ++s.progress;
  s.now_ns += kStepNs;
  Op& head = stream->queue.front();
  if (--head.steps_left > 0) return;
  const WorkPtr work = head.work;
  Context& context = *stream->context;
  if (context.error == CUDA_SUCCESS) {
    if (work->host != nullptr) {
      start_host_function(stream, work, [stream] {
        ++state().progress;
        finish_head(stream);
      });
      return;
    }
    if (work->run != nullptr) {
      const CUresult result = work->run();
      if (result != CUDA_SUCCESS) fail(context, result);
    }
  }
  finish_head(stream);
}

bool random_step() {
  State& s = state();
  if (s.busy.empty()) return false;
  const std::size_t start = s.random() % s.busy.size();
  for (std::size_t i = 0; i < s.busy.size(); ++i) {
    const StreamPtr stream = s.busy[(start + i) % s.busy.size()];
    if (!runnable(*stream)) continue;
    step(stream);
    return true;
  }
  return false;
}

StreamPtr busy_on(TimelineId timeline) {
  for (const StreamPtr& stream : state().busy) {
    if (stream->timeline == timeline) return stream;
  }
  return nullptr;
}

// One step towards `target`: follow what is behind until something can run.
bool directed_step(const VectorClock& target) {
  const State& s = state();
  const VectorClock* behind = &target;
  for (std::size_t hops = 0; hops <= s.timelines.size(); ++hops) {
    StreamPtr stream;
    for (std::size_t i = 0; i < behind->size() && stream == nullptr; ++i) {
      const auto id = static_cast<TimelineId>(i);
      if (s.timelines[i].completed < behind->at(id)) stream = busy_on(id);
    }
    if (stream == nullptr) return false;
    if (runnable(*stream)) {
      step(stream);
      return true;
    }
    if (stream->in_host_function || reached(stream->queue.front().after)) return false;
    behind = &stream->queue.front().after;
  }
  return false;
}

void advance(const VectorClock& target, Waiting& waiting) {
  State& s = state();
  const bool wander = s.chance(s.eagerness / 2);
  if (wander ? (random_step() || directed_step(target)) : (directed_step(target) || random_step())) return;
  // Somebody else must move first: a host function in another thread, or a value the host will write.
  waiting.for_others();
}

}  // namespace

void tick() {
  State& s = state();
  while (s.queued > 0 && s.chance(s.eagerness)) {
    if (!random_step()) return;
  }
}

void tick_for_query() {
  State& s = state();
  const std::uint64_t before = s.progress;
  if (s.queued > 0 && s.chance(25)) random_step();
  tick();
  if (s.queued > 0 && s.progress == before) asked_in_vain();
}

bool done(const VectorClock& target) { return reached(target); }

void host_saw(const VectorClock& target) { state().host.join(target); }

void complete(const VectorClock& target) {
  state().added_waits.host_waits(thread_state.call, target);
  if (!reached(target)) {
    Waiting waiting(target);
    while (!reached(target)) advance(target, waiting);
  }
  host_saw(target);
  trim_pools_after_wait();
}

void stand_until(const Stream& stream, const std::function<bool()>& over) {
  if (over()) return;
  const TimelineId timeline = stream.timeline;
  VectorClock head;
  head.raise(timeline, state().timelines[timeline].completed + 1);
  Waiting waiting(head);
  while (!over()) {
    head.raise(timeline, state().timelines[timeline].completed + 1);
    advance(head, waiting);
  }
}

void stand_with_launches(const Stream& stream) {
  stand_until(stream, [&] { return stream.standing == 0; });
}

StreamPtr standing_in(std::uint64_t context_id) {
  StreamPtr found;
  state().contexts.each([&](const std::shared_ptr<Context>& part) {
    if (part->whole_id() != context_id) return;
    for (const StreamPtr& stream : part->streams) {
      if (stream->standing != 0) found = stream;
    }
  });
  return found;
}

void stand_beside_launches(const Context& context) {
  const std::uint64_t whole = context.whole_id();
  if (const StreamPtr stream = standing_in(whole)) {
    stand_until(*stream, [&] { return standing_in(whole) == nullptr; });
  }
}

bool run_anything(bool& host_function) {
  const auto busy = state().busy;
  for (const StreamPtr& stream : busy) {
    if (!runnable(*stream)) continue;
    host_function = stream->queue.front().work->host != nullptr;
    if (!host_function) step(stream);
    return true;
  }
  return false;
}

void retire_stream(const std::shared_ptr<Stream>& stream) {
  State& s = state();
  s.timelines[stream->timeline].in_use = false;
  Context& context = *stream->context;
  // The stream is gone, its work is not: later legacy work still comes after it.
  if (stream->blocking()) context.gone_blocking.join(stream->clock);
  auto& all = context.streams;
  all.erase(std::remove(all.begin(), all.end(), stream), all.end());
}

}  // namespace cupool::sim
