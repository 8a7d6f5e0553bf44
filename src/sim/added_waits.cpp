// Comparing clocks, and telling the story. A call of the application that waits by itself (a free, a
// synchronise, the end of a context) allows the library every wait that is no longer. Under the state mutex.
#include "sim/added_waits.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/asked_waits.hpp"
#include "sim/contexts.hpp"
#include "sim/options.hpp"
#include "sim/origin.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {
namespace {

constexpr std::size_t kStoriesKept = 8;
constexpr const char* kOfAnotherContext = "is work of another context that no free of that thread waited for";

StreamPtr stream_on(TimelineId timeline) {
  StreamPtr found;
  state().contexts.each([&](const ContextPtr& context) {
    for (const StreamPtr& stream : context->streams) {
      if (stream->timeline == timeline) found = stream;
    }
  });
  return found;
}

// The newest operation of the program's own up to there. What the library's waits wait for is in every clock
// by itself; they run nothing, and a moment in which all of that is over may come before one is made.
std::uint64_t newest_of_program(const Timeline& timeline, std::uint64_t position) {
  const auto& waits = timeline.library_waits;
  while (std::binary_search(waits.begin(), waits.end(), position)) --position;
  return position;
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

VectorClock AddedWaits::without_crossings(std::uint64_t context_id, const VectorClock& target) const {
  const auto is_unjudged = [&](TimelineId id) {
    return std::any_of(crossings_.begin(), crossings_.end(), [&](const Crossing& one) {
      return one.whole == context_id && one.passed.empty() && one.target.at(id) != 0;
    });
  };
  VectorClock result;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto id = static_cast<TimelineId>(i);
    const std::uint64_t position = is_unjudged(id) ? target.own_at(id) : target.at(id);
    if (position != 0) result.raise(id, position);
  }
  return result;
}

void AddedWaits::freed(std::uint64_t context_id, const VectorClock& waited, std::uint64_t thread) {
  const VectorClock target = without_crossings(context_id, waited);
  auto& known = freed_in_[context_id];
  auto joined = known != nullptr ? std::make_shared<VectorClock>(*known) : std::make_shared<VectorClock>();
  joined->join(target);
  known = std::move(joined);
  freed_by_[thread].join(target);
}

std::shared_ptr<const VectorClock> AddedWaits::freed_in(std::uint64_t context_id) const {
  const auto found = freed_in_.find(context_id);
  auto known = found != freed_in_.end() ? found->second : nullptr;
  const ContextPtr context = is_freeing(context_id) ? state().context_by_id(context_id) : nullptr;
  if (context == nullptr) return known;
  auto joined = std::make_shared<VectorClock>(without_crossings(context_id, context_target(*context)));
  if (known != nullptr) joined->join(*known);
  return joined;
}

VectorClock AddedWaits::allowed_anywhere() const {
  // A free or a synchronisation under way waits for this much itself, whoever does it in its place.
  VectorClock result = asked_target(observed_call);
  result.join(done_);
  const auto own = freed_by_.find(thread_id());
  if (own != freed_by_.end()) result.join(own->second);
  return result;
}

VectorClock AddedWaits::allowed_within(std::uint64_t context_id) const {
  VectorClock result = allowed_anywhere();
  if (options().waits == AllowedWaits::kExact) return result;
  if (const auto freed = freed_in(context_id)) result.join(*freed);
  return result;
}

VectorClock AddedWaits::excess(const VectorClock& target, const VectorClock& base, const VectorClock& allowed,
                               std::uint64_t context_id, bool within) const {
  const VectorClock& seen = state().host;
  VectorClock result;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto id = static_cast<TimelineId>(i);
    const Timeline& timeline = state().timelines[i];
    // Its own streams run nothing of the program's; what they wait for is in the clock by itself.
    if (timeline.library || (timeline.context == context_id) != within) continue;
    const std::uint64_t position = newest_of_program(timeline, target.at(id));
    if (position > std::max({base.at(id), seen.at(id), allowed.at(id)})) result.raise(id, position);
  }
  return result;
}

void AddedWaits::blame(const std::string& who, const VectorClock& excess, const char* why,
                       const std::string& what) {
  ++count_;
  if (stories_.size() >= kStoriesKept) return;
  TimelineId id = 0;
  while (excess.at(id) == 0) ++id;
  std::string story = who;
  story.append(" is made to wait for\n      ").append(describe_position(id, excess.at(id)));
  stories_.push_back(story.append(",\n      which ").append(why).append(": ").append(what));
}

void AddedWaits::judge_within(const std::string& who, const std::string& what, const VectorClock& target,
                              const VectorClock& base, std::uint64_t context_id) {
  const VectorClock added = excess(target, base, allowed_within(context_id), context_id, true);
  if (added.size() == 0) return;
  const bool exact = options().waits == AllowedWaits::kExact;
  blame(who, added,
        exact ? "was submitted after the last free of that thread" : "was submitted after the last free",
        what);
}

void AddedWaits::keep(Crossing crossing) {
  const auto is_over = [](const Crossing& one) { return one.target.within(state().host); };
  crossings_.erase(std::remove_if(crossings_.begin(), crossings_.end(), is_over), crossings_.end());
  if (crossing.target.size() != 0) crossings_.push_back(std::move(crossing));
}

void AddedWaits::stream_waits(const Stream& stream, const EventRecord& record) {
  if (!observed_call.added || options().waits == AllowedWaits::kAll) return;
  // Work of the program that waits for such a stream in turn is judged by what the stream waited for.
  if (state().timelines[stream.timeline].library) return;
  const std::uint64_t context = stream.context->whole_id();
  const VectorClock base = before_next(stream);
  Crossing crossing;
  crossing.who = describe_stream(stream);
  crossing.what = "cuStreamWaitEvent " + describe(present_origin()) + ", for an event recorded " +
                  describe(record.origin);
  judge_within(crossing.who, crossing.what, record.clock, base, context);
  crossing.stream = stream.id;
  crossing.whole = context;
  crossing.target = excess(record.clock, base, done_, context, false);
  crossing.thread = thread_id();
  const char* const inside = observed_call.name;
  crossing.is_before_work = inside == nullptr || std::strcmp(inside, "cuLaunchKernel") == 0;
  keep(std::move(crossing));
}

void AddedWaits::context_waits(const Context& context, const EventRecord& record) {
  if (!observed_call.added || options().waits == AllowedWaits::kAll) return;
  const VectorClock base = context_floor(context);
  Crossing crossing;
  crossing.who = "all later work of context " + std::to_string(context.id);
  crossing.what =
      "cuCtxWaitEvent " + describe(present_origin()) + ", for an event recorded " + describe(record.origin);
  judge_within(crossing.who, crossing.what, record.clock, base, context.whole_id());
  crossing.context = context.id;
  crossing.whole = context.whole_id();
  crossing.target = excess(record.clock, base, done_, context.whole_id(), false);
  crossing.thread = thread_id();
  keep(std::move(crossing));
}

bool AddedWaits::judge(Crossing& crossing, const Stream& stream, std::uint64_t position, const Work& work,
                       const VectorClock& after) {
  const bool is_of_stream = crossing.stream != 0;
  const Context& context = *stream.context;
  const bool concerns = is_of_stream
                            ? crossing.stream == stream.id
                            : crossing.context == context.id || crossing.context == context.whole_id();
  if (!concerns) return false;
  // Work of another thread may slip in between such a wait and the work that it is for.
  if (crossing.is_before_work && crossing.thread != thread_id()) return false;
  const auto follows = [&](const auto& passed) { return after.own_at(passed.first) >= passed.second; };
  if (std::any_of(crossing.passed.begin(), crossing.passed.end(), follows)) return false;
  VectorClock allowed = allowed_within(context.whole_id());
  for (const auto* spans : {&work.touches, &work.brings}) {
    for (const Span& span : *spans) allowed.join(state().oracle.freed_before(span.lo, span.hi));
  }
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto id = static_cast<TimelineId>(i);
    if (after.own_at(id) != 0) allowed.raise(id, after.own_at(id));
  }
  const VectorClock added = excess(crossing.target, VectorClock(), allowed, context.whole_id(), false);
  if (added.size() == 0) {
    crossing.passed.emplace_back(stream.timeline, position);
    return is_of_stream;
  }
  blame(work.what + " on " + describe_stream(stream) + " (its operation " + std::to_string(position) +
            ", thread " + std::to_string(thread_id()) + ")",
        added, kOfAnotherContext, crossing.who + ", " + crossing.what);
  return true;
}

void AddedWaits::submitted(const Stream& stream, std::uint64_t position, const Work& work,
                           const VectorClock& after) {
  if (crossings_.empty() || work.library || observed_call.added || state().timelines[stream.timeline].library)
    return;
  const auto is_over = [&](Crossing& one) { return judge(one, stream, position, work, after); };
  crossings_.erase(std::remove_if(crossings_.begin(), crossings_.end(), is_over), crossings_.end());
}

void AddedWaits::host_waits(const char* call, const VectorClock& target) {
  if (!observed_call.added || options().waits == AllowedWaits::kAll) return;
  std::uint64_t about = context_of(observed_call);
  ContextPtr context;
  if (observed_call.name == nullptr && current_context(context) == CUDA_SUCCESS) about = context->whole_id();
  const std::string who = "thread " + std::to_string(thread_id());
  const std::string what = std::string(call) + " " + describe(present_origin());
  // An allocation that the device refused may wait for its context: the program would have been refused.
  if (!observed_call.refused) judge_within(who, what, target, VectorClock(), about);
  const VectorClock added = excess(target, VectorClock(), allowed_within(about), about, false);
  if (added.size() != 0) blame(who, added, kOfAnotherContext, what);
}

bool AddedWaits::is_longer_than_asked(const VectorClock& target) const {
  if (!observed_call.added) return false;
  VectorClock asked = asked_target(observed_call);
  asked.join(state().host);
  return !target.within(asked);
}

}  // namespace cupool::sim
