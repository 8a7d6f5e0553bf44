// See player.hpp.
#include "replay/player.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/clock.hpp"
#include "config/options.hpp"
#include "mapped/spill.hpp"
#include "memory/hot_path.hpp"
#include "memory/memory.hpp"
#include "replay/relay.hpp"
#include "stats/counters.hpp"
#include "stats/device.hpp"
#include "stats/service.hpp"

namespace cupool::replay {

namespace {

constexpr uint64_t kStart = 1'000'000'000;  // the clock of a program without times
constexpr char kAsRecorded[] = "the record says so";

class Player {
 public:
  Player(const Program& program, const Conditions& conditions)
      : program_(program),
        device_(program, conditions.capacity, conditions.lag),
        memory_(&device_, &device_),
        one_thread_(conditions.one_thread || program.threads <= 1),
        held_(program.blocks),
        relay_(program.threads + 1) {
    const config::Options& options = config::options();
    if (options.streams == config::Streams::kFences)
      memory_.order().expect_untracked_work("CUPOOL_STREAMS=fences");
    if (options.streams == config::Streams::kExact)
      memory_.order().use_completed_only("CUPOOL_STREAMS=exact");
    if (options.segments == config::Segments::kMapped) memory_.pools().use_mapped(&device_);
    if (options.spill.of(kUnlimited) != 0)
      memory_.shortage().use_spill(new mapped::Spill(device_, device_, options.spill));
    if (!options.split) memory_.use_dedicated_allocations();
    decay_ms_ = program.has_times ? options.decay_ms : 0;
    period_ = std::max<uint64_t>(decay_ms_ / 4, 1) * 1'000'000;
  }

  Figures run() {
    if (!program_.steps.empty()) {
      const auto begin = std::chrono::steady_clock::now();
      set_clock(program_.has_times ? program_.steps.front().time : kStart);
      looked_ = now_ns();
      relay_.run(next_, play_);
      const auto ns = std::chrono::steady_clock::now() - begin;
      figures_.ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(ns).count());
    }
    read_figures();
    return figures_;
  }

 private:
  struct Held {
    driver::Address address = 0;
    uint64_t bytes = 0;
    uint8_t place = 0;
  };

  // ---- Whose turn it is.

  size_t ours() const { return program_.threads; }  // the thread that looks for idle memory
  // Our own thread looks as often as in a program, until nothing changes by it.
  bool is_look_due() const {
    constexpr uint64_t kMostInARow = 12;
    return decay_ms_ != 0 && looks_in_a_row_ < kMostInARow && program_.steps[at_].time >= looked_ + period_;
  }
  size_t next() const {
    if (at_ == program_.steps.size()) return kOver;
    if (is_look_due() || program_.steps[at_].thread == kNoThread) return ours();
    return one_thread_ ? 0 : program_.steps[at_].thread;
  }

  // ---- Steps.

  void look() {
    looked_ += period_;
    if (++looks_in_a_row_ == 1 && looked_ + period_ < now_ns()) looked_ = now_ns();
    set_clock(std::max(looked_, now_ns()));
    device_.set_step(at_);
    // A look that found work pending is in the record.
    bool is_idle = true;
    memory_.order().for_each([&](order::Timeline& time) { is_idle = is_idle && time.is_idle(); });
    if (is_idle || !program_.knows_done) memory_.idle().decay_quiet([] { return true; });
  }

  void play_next() {
    const Step& step = program_.steps[at_];
    looks_in_a_row_ = 0;
    if (program_.has_times) {
      if (decay_ms_ != 0 && step.time >= looked_ + period_) looked_ = step.time / period_ * period_;
      set_clock(std::max(step.time, now_ns()));
    }
    // What is told of a free lies behind it, of an allocation before it.
    device_.set_step(step.what == Do::kFree ? at_ + 1 : at_, step.what == Do::kLook);
    ++at_;
    if (step.what == Do::kThreadEnds) return end_thread();
    if (step.place == kNoPlace) return play_everywhere(step);
    device_.enter(step.place);
    play(step);
  }

  void play_everywhere(const Step& step) {
    order::Timelines& order = memory_.order();
    switch (step.what) {
      case Do::kUntracked:
        return order.expect_untracked_work(kAsRecorded);
      case Do::kCompletedOnly:
        return order.use_completed_only(kAsRecorded);
      case Do::kDirectAccess:
        return order.expect_direct_access(kAsRecorded);
      default:
        device_.note_launch();
        return order.note_early_work();
    }
  }

  void end_thread() {
    if (one_thread_) return;
    pool::end_this_thread();
    relay_.end_this_thread();
  }

  void play(const Step& step) {
    const driver::Context context = Device::context(step.place);
    switch (step.what) {
      case Do::kAllocate:
        return allocate(step, context);
      case Do::kFree:
        return free(step);
      case Do::kWork:
        return work(step, context);
      case Do::kWait:
        return wait(step, context);
      case Do::kWaitBegins:
        if (order::Timeline* const time = memory_.order().find(context))
          wait_of(step) = time->begin_wait(lane_of(step));
        return;
      case Do::kWaitEnds:
      case Do::kWaitFailed:
        if (order::Timeline* const time = memory_.order().find(context))
          time->end_wait(wait_of(step), step.what == Do::kWaitEnds);
        return;
      case Do::kWaited:
        if (decay_ms_ != 0) memory_.idle().decay();
        return;
      case Do::kStreamEnds:
        if (order::Timeline* const time = memory_.order().find(context)) time->destroy_stream(lane_of(step));
        return;
      case Do::kContextEnds:
        return end_context(step, context);
      case Do::kLook:
        if (order::Timeline* const time = memory_.order().find(context)) time->expect_completion();
        return;
      case Do::kUntracked:
      case Do::kCompletedOnly:
        if (order::Timeline* const time = memory_.order().find(context)) time->use_completed_only();
        return;
      case Do::kDirectAccess:
        return memory_.order().expect_peers(context, kAsRecorded);
      case Do::kThreadEnds:
        return;
      case Do::kCompare:
        return compare(program_.checks[step.block]);
    }
  }

  static order::Lane lane_of(const Step& step) {
    return step.stream == 0 ? order::Lane::kMany : static_cast<order::Lane>(step.stream);
  }
  order::Epoch& wait_of(const Step& step) {
    if (step.block >= waits_.size()) waits_.resize(step.block + 1, 0);
    return waits_[step.block];
  }

  void allocate(const Step& step, driver::Context context) {
    const uint64_t calls = device_.calls();
    driver::Address address = 0;
    stats::last_service = {};
    const driver::Status status = memory_.allocate(context, step.bytes, &address);
    if (status != driver::kSuccess) {
      if (figures_.failed++ == 0) {
        figures_.refused_bytes = step.bytes;
        figures_.refused_step = at_ - 1;
      }
      return;
    }
    ++figures_.allocations;
    compare_service(step.block);
    if (device_.calls() == calls) ++figures_.hits;
    held_[step.block] = {address, step.bytes, step.place};
    live_ += step.bytes;
    figures_.peak_live = std::max(figures_.peak_live, live_);
  }
  void free(const Step& step) {
    Held& held = held_[step.block];
    if (held.address == 0) return;
    live_ -= held.bytes;
    memory_.free(held.address);
    held = {};
  }
  void end_context(const Step& step, driver::Context context) {
    memory_.close(context);
    for (Held& held : held_) {
      if (held.address == 0 || held.place != step.place) continue;
      live_ -= held.bytes;
      held = {};
    }
  }
  void work(const Step& step, driver::Context context) {
    order::Timeline* const time = memory_.order().find(context);
    device_.note_launch();
    if (time == nullptr) return memory_.order().note_early_work();
    if (time->before_submit(lane_of(step), reinterpret_cast<driver::Stream>(step.stream)))
      time->after_submit(lane_of(step));
  }
  void wait(const Step& step, driver::Context context) {
    order::Timeline* const time = memory_.order().find(context);
    if (time == nullptr) return;
    const order::Epoch epoch = time->begin_wait(lane_of(step));
    device_.finish(step.place);
    time->end_wait(epoch, true);
  }
  void compare(const Check& check) {
    const stats::DeviceSums sums = stats::device(check.device).read();
    ++figures_.compared;
    if (sums.live_bytes == check.live && sums.asked_bytes == check.asked &&
        sums.reserved_bytes == check.reserved)
      ++figures_.agreed;
  }

  // Whether the block was served as in the record.
  void compare_service(uint32_t block) {
    if (block >= program_.served.size() || program_.served[block] == kNotKnown) return;
    const bool is_alike = program_.served[block] == static_cast<uint8_t>(stats::last_service.how);
    ++(is_alike ? figures_.served_alike : figures_.served_otherwise);
  }

  void read_figures() {
    figures_.peak_taken = device_.peak();
    figures_.driver_calls = device_.calls();
    figures_.last_reserved = device_.reserved();
    for (int i = 0; i < program_.devices(); ++i)
      figures_.most_on_a_device = std::max(figures_.most_on_a_device, device_.peak_of(i));
    const stats::Sums sums = stats::sums();
    figures_.waits = sums.stream_waits + sums.context_waits + sums.pool_waits;
    uint64_t reserved = 0;
    for (int i = 0; i < std::min(program_.devices(), stats::kMostDevices); ++i) {
      const stats::DeviceSums one = stats::device(i).read();
      figures_.kept += one.thread_hits;
      figures_.slab += one.slab_hits;
      figures_.range += one.range_hits;
      figures_.after_wait += one.hits_after_wait;
      figures_.missed += one.misses;
      figures_.segments_taken += one.segments_allocated;
      figures_.segments_given += one.segments_released;
      figures_.pool_peak_reserved += one.peak_reserved_bytes;
      figures_.pool_peak_live += one.peak_live_bytes;
      reserved += one.reserved_bytes;
    }
    // (Blocks of their own are less than the steps in which the driver gives them. Of segments the two are
    // the same, but that peaks of several devices need not come at once.)
    const bool is_split = config::options().split;
    figures_.peak_reserved = is_split ? device_.peak() : figures_.pool_peak_reserved;
    if (!is_split) figures_.last_reserved = reserved;
  }

  const Program& program_;
  Device device_;
  memory::Memory memory_;
  const bool one_thread_;
  uint64_t decay_ms_ = 0;
  uint64_t period_ = 0;
  uint64_t looked_ = 0;
  uint64_t looks_in_a_row_ = 0;
  size_t at_ = 0;
  std::vector<Held> held_;
  std::vector<order::Epoch> waits_;
  uint64_t live_ = 0;
  Figures figures_;
  Relay relay_;
  const std::function<size_t()> next_ = [this] { return next(); };
  const std::function<void()> play_ = [this] { is_look_due() ? look() : play_next(); };
};

}  // namespace

Figures play(const Program& program, const Conditions& conditions) {
  // For good: its threads, and the page map, refer to it.
  return (new Player(program, conditions))->run();
}

}  // namespace cupool::replay
