// See file_thread.hpp.
#include "hooks/process/file_thread.hpp"

#include <algorithm>
#include <atomic>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/filters.hpp"
#include "base/kept_log.hpp"
#include "base/log.hpp"
#include "base/own_files.hpp"
#include "config/options.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/process/neighbours.hpp"
#include "hooks/process/round.hpp"
#include "hooks/process/trace_switch.hpp"
#include "report/report.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kBetweenMetrics = 10 * kSecond;
// How often to look for the end of the last thread, once the main one has ended.
constexpr uint64_t kNearTheEnd = kSecond / 50;

constinit std::atomic<bool> is_to_end{false};
constinit std::atomic<bool> is_to_gather{false};
CUPOOL_AFTER_FORK(file_thread_after_fork, [] {
  is_to_end.store(false, std::memory_order_relaxed);
  is_to_gather.store(false, std::memory_order_relaxed);
});

class Files {
 public:
  explicit Files(Handover& handover) : handover_(handover) {}

  ThreadEnds work() {
    log::keep_lines_of_this_thread();
    has_files_ = take_own_files();
    if (!has_files_)
      log::detail(
          "this system gives a thread no descriptors of its own: no registry of neighbours, no metrics");
    if (has_files_) filters_.begin();
    ThreadEnds how = ThreadEnds::kPlainly;
    while (!is_over(&how)) {
      play();
      sleep(has_main_ended() ? kNearTheEnd : background_period());
    }
    handover_.end(how);
    return ThreadEnds::kPlainly;
  }

 private:
  [[noreturn]] static void end_under_filter() {
    note_background_thread_lost();
    end_own_thread_now();
  }

  // Until the next round is due or a neighbour asks. While there is a trace, its events are gathered
  // meanwhile.
  void sleep(uint64_t how_long) {
    const uint64_t end = now_ns() + how_long;
    for (uint64_t now = now_ns(); now < end; now = now_ns()) {
      const bool traces = trace::is_on();
      const uint64_t part = traces ? std::min(end - now, trace::kBetweenGatherings) : end - now;
      if (has_files_) filters_.arm();
      wait_for_neighbours(has_files_, part);
      // First of all that is done after a sleep: anything else may be what a filter forbids.
      if (filters_.has_new()) end_under_filter();
      if (!traces) return;
      const bool is_asked = is_to_gather.exchange(false, std::memory_order_acq_rel);
      const bool is_early = now_ns() - now < part;
      gather();
      if (is_early && !is_asked) return;
    }
  }

  void gather() {
    int* const kept = has_files_ ? &trace_file_ : nullptr;
    attend_to_trace(kept);
    trace::gather_now(kept);
    // The other thread has the program's stderr.
    if (log::has_kept_lines()) handover_.play();
  }

  bool is_over(ThreadEnds* how) {
    const bool is_end = is_background_stopped() || is_to_end.load(std::memory_order_acquire);
    if (!is_end && !are_only_own_threads_left()) return false;
    if (trace::is_on()) gather();
    if (has_files_) leave_neighbours();
    if (!is_end) *how = ThreadEnds::kLast;
    return true;
  }

  void play() {
    Round& round = handover_.round();
    follow_capabilities();
    if (has_files_) meet_neighbours();
    // Requests that could not be answered stand; newer ones wait in the registry.
    if (has_files_ && round.ask_count == 0)
      round.ask_count = obey_trace_requests(round.asks, hear_neighbours(round.asks, std::size(round.asks)));
    attend_to_trace(has_files_ ? &trace_file_ : nullptr);
    handover_.play();
    if (!round.is_done) return;
    // The process that asked waits for a newer stamp, even if the figures are the same.
    if (has_files_) show_to_neighbours(round.figures, round.figure_count, round.ask_count != 0);
    round.ask_count = 0;
    const uint64_t now = now_ns();
    if (has_files_ && now - measured_ >= kBetweenMetrics) {
      measured_ = now;
      report::write_metrics_now(round.figures, round.figure_count);
    }
    // The other thread has the program's stderr.
    if (log::has_kept_lines()) handover_.play();
  }

  Handover& handover_;
  FilterWatch filters_;
  bool has_files_ = false;
  uint64_t measured_ = 0;
  int trace_file_ = -1;
};

}  // namespace

ThreadEnds work_on_files(void* data) { return Files(*static_cast<Handover*>(data)).work(); }

void wake_file_thread_to_gather() {
  is_to_gather.store(true, std::memory_order_release);
  end_wait_for_neighbours();
}

void end_file_thread() {
  is_to_end.store(true, std::memory_order_release);
  end_wait_for_neighbours();
}

void keep_file_thread() { is_to_end.store(false, std::memory_order_release); }

}  // namespace cupool::hooks
