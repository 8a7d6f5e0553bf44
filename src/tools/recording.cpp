// See recording.hpp. The steps of a trace of cupool's, in the order of its times; a position is a number of
// steps, and what was told between two steps lies at the position between them.
#include "tools/recording.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/builder.hpp"
#include "tools/code_names.hpp"
#include "tools/done_work.hpp"
#include "tools/stack_text.hpp"
#include "tools/trace_reader.hpp"
#include "trace/events.hpp"

namespace cupool::tools {

namespace {

using replay::Do;
using replay::Step;

constexpr size_t kMostPlaces = 250;
// (Who waits for a minute asks so often.)
constexpr uint64_t kMostAsked = 1 << 20;
constexpr uint8_t kPool[] = {
    static_cast<uint8_t>(trace::Kind::kPool), static_cast<uint8_t>(trace::Kind::kWhole),
    static_cast<uint8_t>(trace::Kind::kNative), static_cast<uint8_t>(trace::Kind::kSpilled)};

// A field of an event of this file, by the table in its head.
class Field {
 public:
  Field(const TraceAbout& about, size_t event, const char* name)
      : at_(event < about.events.size() ? about.events[event].find(name) : -1) {}
  uint64_t of(const Happened& happened) const {
    return at_ < 0 ? 0 : happened.values[static_cast<size_t>(at_)];
  }

 private:
  int at_;
};

class Recording {
  using Event = replay::Place::Done;
  using By = Event::By;

 public:
  explicit Recording(const TraceAbout& about) : about_(about) { builder_.program().places.clear(); }

  void see(const Happened& happened) {
    if (happened.event == allocated_) return allocated(happened);
    if (happened.event == freed_) return freed(happened);
    if (happened.event == worked_) return worked(happened);
    if (happened.event == ordered_) return ordered(happened);
    if (happened.event == waited_) return waited(happened);
    if (happened.event == live_) return live(happened);
    if (happened.event == segment_) return segment(happened);
    if (happened.event == counters_) return counters(happened);
    if (happened.event == driver_) return driver(happened);
    if (happened.event == context_ended_) return context_ended(happened);
    if (happened.event == thread_ended_) return builder_.end_thread(happened.thread, at(happened));
  }

  // `names`: null leaves stacks without them.
  bool finish(StackText* names, replay::Program* out, std::string* error) {
    for (const auto& [name, one] : earlier_) {
      if (seen_.count(name) == 0) builder_.held_before(name, one.bytes, one.step, one.stack);
    }
    replay::Program& program = builder_.program();
    if (program.places.empty()) program.places.emplace_back();
    for (replay::Place& place : program.places) DoneWork::settle(&place);
    *out = builder_.finish();
    out->stack_names.emplace_back();
    for (size_t i = 1; names != nullptr && i < stacks_.size(); ++i)
      out->stack_names.push_back(one_line(names->lines(stacks_[i])));
    out->form = "cupool";
    out->has_times = true;
    out->has_waits = true;
    out->knows_done = true;
    out->has_recorded = !misses_segments_ && out->first_held == 0 && out->recorded.peak_reserved != 0;
    if (has_too_many_contexts_)
      *error = "it has more contexts than can be played";
    else if (out->blocks == 0)
      *error = "the pool served no allocation in it";
    return error->empty();
  }

 private:
  struct Earlier {
    Step step;
    uint64_t bytes;
    uint32_t stack;
  };

  // A number of the program's for one of the trace's.
  uint32_t stack_of(uint64_t number) {
    if (number == 0) return 0;
    const auto [entry, is_new] = stack_numbers_.try_emplace(number, static_cast<uint32_t>(stacks_.size()));
    if (is_new) stacks_.push_back(number);
    return entry->second;
  }
  static std::string one_line(const std::vector<std::string>& frames) {
    constexpr size_t kMostFrames = 6;
    std::string out;
    for (size_t i = 0; i < frames.size() && i < kMostFrames; ++i) out += (i == 0 ? "" : " < ") + frames[i];
    return out;
  }

  // The words of a choice may stand elsewhere in a file of another version.
  bool is_pools(uint64_t kind) const {
    return std::find(std::begin(kPool), std::end(kPool), kind) != std::end(kPool);
  }
  uint64_t position() const { return builder_.steps(); }

  static Step at(const Happened& happened) {
    Step step;
    step.time = happened.time;
    return step;
  }
  Step step_of(const Happened& happened, Do what) {
    Step step = at(happened);
    step.what = what;
    step.thread = builder_.thread(happened.thread);
    return step;
  }
  uint8_t place_of(uint64_t context, uint64_t device) {
    auto& places = builder_.program().places;
    const auto known = places_.find(context);
    if (known != places_.end()) return known->second;
    if (places.size() >= kMostPlaces) {
      has_too_many_contexts_ = true;
      return 0;
    }
    places.emplace_back().device = static_cast<int>(std::min<uint64_t>(device, 63));
    return places_[context] = static_cast<uint8_t>(places.size() - 1);
  }

  void allocated(const Happened& happened) {
    if (!is_pools(kind_of_allocated_.of(happened))) {
      ++builder_.program().left_out;
      return;
    }
    Step step = step_of(happened, Do::kAllocate);
    step.place = place_of(context_of_allocated_.of(happened), device_of_allocated_.of(happened));
    step.stream = stream_of_allocated_.of(happened);
    const uint64_t name = address_of_allocated_.of(happened);
    seen_[name] = true;
    if (builder_.is_held(name)) builder_.free(name, step);  // that event was lost
    if (builder_.allocate(name, asked_of_allocated_.of(happened), step,
                          stack_of(stack_of_allocated_.of(happened))))
      builder_.note_served(static_cast<uint8_t>(sort_of_allocated_.of(happened)));
    note_beside();
  }

  void live(const Happened& happened) {
    if (!is_pools(kind_of_live_.of(happened))) return;
    Step step = step_of(happened, Do::kAllocate);
    step.place = place_of(context_of_live_.of(happened), device_of_live_.of(happened));
    const uint64_t name = address_of_live_.of(happened);
    if (!builder_.is_held(name))
      earlier_[name] = {step, asked_of_live_.of(happened), stack_of(stack_of_live_.of(happened))};
  }

  void freed(const Happened& happened) {
    if (!is_pools(kind_of_freed_.of(happened))) return;
    const uint64_t name = address_of_freed_.of(happened);
    Step step = step_of(happened, Do::kFree);
    if (!builder_.is_held(name)) {
      const auto earlier = earlier_.find(name);
      if (earlier == earlier_.end() || seen_.count(name) != 0) return;
      builder_.held_before(name, earlier->second.bytes, earlier->second.step, earlier->second.stack);
      seen_[name] = true;
    }
    step.place = builder_.place_of(name);
    builder_.free(name, step);
    after_free_[happened.thread] = position();
  }

  void worked(const Happened& happened) {
    Step step = step_of(happened, Do::kWork);
    const uint64_t context = context_of_worked_.of(happened);
    const auto known = places_.find(context);
    step.place = context == 0 || known == places_.end() ? replay::kNoPlace : known->second;
    step.stream = stream_of_worked_.of(happened);
    builder_.other(step);
  }

  void ordered(const Happened& happened) {
    const auto what = static_cast<trace::Ordering>(what_of_ordered_.of(happened));
    auto& recorded = builder_.program().recorded;
    if (what == trace::Ordering::kStreamWait || what == trace::Ordering::kContextWait) ++recorded.waits;
    const uint64_t context = context_of_ordered_.of(happened);
    const bool is_rule = what == trace::Ordering::kUntracked || what == trace::Ordering::kCompletedOnly ||
                         what == trace::Ordering::kDirectAccess;
    if (context == 0 && is_rule) return rule(happened, what, replay::kNoPlace);
    const auto known = places_.find(context);
    if (known == places_.end()) return;
    const uint8_t place = known->second;
    replay::Place& here = builder_.program().places[place];
    const uint64_t epoch = epoch_of_ordered_.of(happened);
    const uint64_t asked = std::min(asked_of_ordered_.of(happened), kMostAsked);
    switch (what) {
      case trace::Ordering::kSeal:
        done_.seal(place, epoch, position());
        break;
      case trace::Ordering::kSealAtLook:
        look(happened, place);
        done_.seal(place, epoch, position() - 1);
        break;
      case trace::Ordering::kDoneAtFree:
        done_.note(place, epoch, {after_free_[happened.thread], asked, By::kPoll}, &here);
        break;
      case trace::Ordering::kDone:
        done_.note(place, epoch, {position(), asked, By::kPoll}, &here);
        break;
      case trace::Ordering::kDoneAtLook:
        // At one look there may be a seal, and what is done.
        look(happened, place);
        done_.note(place, epoch, {position() - 1, asked, By::kLook}, &here);
        break;
      case trace::Ordering::kInVain:
        here.in_vain.push_back({position(), asked});
        break;
      case trace::Ordering::kOwnWaitBegins:
        waits_[{place, epoch}] = {kNoStep, Event::event(position(), Event::kMostInAStep)};
        break;
      case trace::Ordering::kWaitBegins: {
        Step step = step_of(happened, Do::kWaitBegins);
        step.place = place;
        step.stream = stream_of_ordered_.of(happened);
        step.block = last_wait_++;
        waits_[{place, epoch}] = {step.block, Event::event(position(), Event::kMostInAStep)};
        builder_.other(step);
        break;
      }
      case trace::Ordering::kWaitEnds:
      case trace::Ordering::kWaitFailed: {
        const auto wait = waits_.find({place, epoch});
        if (wait == waits_.end()) break;
        const bool is_good = what == trace::Ordering::kWaitEnds;
        if (is_good) here.done.push_back({wait->second.second, position(), 0, By::kWait});
        if (wait->second.first != kNoStep) {
          Step step = step_of(happened, is_good ? Do::kWaitEnds : Do::kWaitFailed);
          step.place = place;
          step.block = wait->second.first;
          builder_.other(step);
        }
        waits_.erase(wait);
        break;
      }
      case trace::Ordering::kStreamEnds: {
        Step step = step_of(happened, Do::kStreamEnds);
        step.place = place;
        step.stream = stream_of_ordered_.of(happened);
        builder_.other(step);
        break;
      }
      case trace::Ordering::kCompletedOnly:
      case trace::Ordering::kDirectAccess:
        rule(happened, what, place);
        break;
      default:
        break;
    }
  }

  void rule(const Happened& happened, trace::Ordering what, uint8_t place) {
    Step step = step_of(happened, what == trace::Ordering::kUntracked       ? Do::kUntracked
                                  : what == trace::Ordering::kCompletedOnly ? Do::kCompletedOnly
                                                                            : Do::kDirectAccess);
    step.place = place;
    builder_.other(step);
  }

  // What our own thread does.
  void look(const Happened& happened, uint8_t place) {
    const auto& steps = builder_.program().steps;
    if (!steps.empty() && steps.back().what == Do::kLook && steps.back().place == place) return;
    Step step;
    step.time = happened.time;
    step.what = Do::kLook;
    step.thread = replay::kNoThread;
    step.place = place;
    builder_.other(step);
  }

  void waited(const Happened& happened) {
    const auto cause = static_cast<trace::Cause>(cause_of_waited_.of(happened));
    if (cause == trace::Cause::kPool) ++builder_.program().recorded.waits;
    if (cause != trace::Cause::kSynchronisation || result_of_waited_.of(happened) != 0) return;
    const uint64_t call = call_of_waited_.of(happened);
    // (Waiting for an event is no moment at which memory goes back.)
    if (call < about_.calls.size() && about_.calls[call].find("Event") != std::string::npos) return;
    builder_.other(step_of(happened, Do::kWaited));
  }

  void segment(const Happened& happened) {
    auto& recorded = builder_.program().recorded;
    const uint64_t bytes = bytes_of_segment_.of(happened);
    switch (static_cast<trace::Dealing>(what_of_segment_.of(happened))) {
      case trace::Dealing::kTaken:
        recorded.segments.push_back(
            {address_of_segment_.of(happened), bytes,
             static_cast<int>(std::min<uint64_t>(device_of_segment_.of(happened), 63))});
        [[fallthrough]];
      case trace::Dealing::kMapped:
        reserved_ += bytes;
        recorded.peak_reserved = std::max(recorded.peak_reserved, reserved_);
        break;
      case trace::Dealing::kGiven:
      case trace::Dealing::kUnmapped:
        reserved_ -= std::min(reserved_, bytes);
        break;
      case trace::Dealing::kRefused:
      case trace::Dealing::kMoved:
        break;
    }
    ++recorded.driver_calls;
  }

  void counters(const Happened& happened) {
    replay::Program& program = builder_.program();
    misses_segments_ = misses_segments_ || reserved_of_counters_.of(happened) > reserved_;
    Step step = step_of(happened, Do::kCompare);
    step.block = static_cast<uint32_t>(program.checks.size());
    program.checks.push_back({live_of_counters_.of(happened), asked_of_counters_.of(happened),
                              reserved_of_counters_.of(happened),
                              static_cast<int>(std::min<uint64_t>(device_of_counters_.of(happened), 63))});
    builder_.other(step);
  }

  void driver(const Happened& happened) {
    replay::Program& program = builder_.program();
    const uint64_t total = total_of_driver_.of(happened);
    const uint64_t known = free_of_driver_.of(happened) + reserved_of_driver_.of(happened);
    program.device_bytes = std::max(program.device_bytes, total);
    beside_ = total - std::min(total, known);
    note_beside();
  }

  // What is taken besides while the pool has no block need not be there together with it.
  void note_beside() {
    uint64_t& most = builder_.program().beside;
    if (builder_.holds_any() || !earlier_.empty()) most = std::max(most, beside_);
  }

  void context_ended(const Happened& happened) {
    const auto known = places_.find(context_of_ended_.of(happened));
    if (known == places_.end()) return;
    Step step = step_of(happened, Do::kContextEnds);
    step.place = known->second;
    builder_.other(step);
    builder_.forget(known->second);
    places_.erase(known);
  }

  const TraceAbout& about_;
  replay::Builder builder_;
  std::map<uint64_t, uint8_t> places_;
  std::unordered_map<uint64_t, Earlier> earlier_;
  std::unordered_map<uint64_t, bool> seen_;
  std::unordered_map<uint32_t, uint64_t> after_free_;  // of each thread, the position after its last free
  DoneWork done_;
  static constexpr uint32_t kNoStep = ~uint32_t{0};  // a replay's own pool waits
  std::map<std::pair<uint8_t, uint64_t>, std::pair<uint32_t, uint64_t>> waits_;
  uint32_t last_wait_ = 0;
  std::unordered_map<uint64_t, uint32_t> stack_numbers_;
  std::vector<uint64_t> stacks_{0};
  uint64_t reserved_ = 0;
  uint64_t beside_ = 0;           // taken by others than the pool, now
  bool misses_segments_ = false;  // the trace began after the pool had taken memory
  bool has_too_many_contexts_ = false;

  const size_t allocated_ = about_.find_event("allocated"), freed_ = about_.find_event("freed"),
               worked_ = about_.find_event("worked"), ordered_ = about_.find_event("ordered"),
               waited_ = about_.find_event("waited"), live_ = about_.find_event("live"),
               segment_ = about_.find_event("segment"), counters_ = about_.find_event("counters"),
               driver_ = about_.find_event("driver"), context_ended_ = about_.find_event("context_ended"),
               thread_ended_ = about_.find_event("thread_ended");
#define CUPOOL_FIELD(event, name) const Field name##_of_##event##_{about_, event##_, #name};
  CUPOOL_FIELD(allocated, address)
  CUPOOL_FIELD(allocated, asked)
  CUPOOL_FIELD(allocated, sort)
  CUPOOL_FIELD(allocated, stack)
  CUPOOL_FIELD(allocated, kind)
  CUPOOL_FIELD(allocated, stream)
  CUPOOL_FIELD(allocated, context)
  CUPOOL_FIELD(allocated, device)
  CUPOOL_FIELD(live, address)
  CUPOOL_FIELD(live, asked)
  CUPOOL_FIELD(live, stack)
  CUPOOL_FIELD(live, kind)
  CUPOOL_FIELD(live, context)
  CUPOOL_FIELD(live, device)
  CUPOOL_FIELD(freed, address)
  CUPOOL_FIELD(freed, kind)
  CUPOOL_FIELD(worked, stream)
  CUPOOL_FIELD(worked, context)
  CUPOOL_FIELD(ordered, what)
  CUPOOL_FIELD(ordered, stream)
  CUPOOL_FIELD(ordered, epoch)
  CUPOOL_FIELD(ordered, context)
  CUPOOL_FIELD(ordered, asked)
  CUPOOL_FIELD(waited, call)
  CUPOOL_FIELD(waited, cause)
  CUPOOL_FIELD(waited, result)
  CUPOOL_FIELD(segment, what)
  CUPOOL_FIELD(segment, bytes)
  CUPOOL_FIELD(segment, address)
  CUPOOL_FIELD(segment, device)
  CUPOOL_FIELD(counters, live)
  CUPOOL_FIELD(counters, asked)
  CUPOOL_FIELD(counters, reserved)
  CUPOOL_FIELD(counters, device)
  CUPOOL_FIELD(driver, free)
  CUPOOL_FIELD(driver, reserved)
  CUPOOL_FIELD(driver, total)
#undef CUPOOL_FIELD
  const Field context_of_ended_{about_, context_ended_, "context"};
};

}  // namespace

bool read_recording(std::FILE* file, bool with_names, replay::Program* out, std::string* error) {
  TraceReader reader(file);
  if (!reader.begin()) {
    *error = reader.error();
    return false;
  }
  Recording recording(reader.about());
  if (!reader.read([&](const Happened& happened) { recording.see(happened); })) {
    *error = reader.error();
    return false;
  }
  CodeNames names({});
  StackText texts(reader.stacks(), names);
  return recording.finish(with_names ? &texts : nullptr, out, error);
}

}  // namespace cupool::tools
