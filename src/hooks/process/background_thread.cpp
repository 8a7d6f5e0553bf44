// See background_thread.hpp. `starting` guards the start of the threads; `working` is held while the thread
// may call the driver, and by a thread that ends a context (BackgroundThreadPause).
#include "hooks/process/background_thread.hpp"

#include <algorithm>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/filters.hpp"
#include "base/kept_log.hpp"
#include "base/lock.hpp"
#include "base/own_thread.hpp"
#include "base/preserve_errno.hpp"
#include "config/options.hpp"
#include "hooks/process/file_thread.hpp"
#include "hooks/process/neighbours.hpp"
#include "hooks/process/round.hpp"
#include "hooks/sharing/lending.hpp"
#include "hooks/state/serving.hpp"
#include "report/figures.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {

namespace detail {
constinit std::atomic<bool> has_background_thread{false};
}

namespace {

constexpr uint64_t kMillisecond = 1'000'000;
// A thread that is about to sleep when it is told to end has not heard, and is told again.
constexpr int kTurnsInAMoment = 600;
constexpr int kTurnsToHear = 100;

constinit Lock starting{Rank::kBackgroundStart};
constinit Lock working{Rank::kBackgroundWork};
constinit std::atomic<bool> is_running{false};
constinit std::atomic<bool> is_stopped{false};
constinit std::atomic<bool> had_filter{false};
// Threads that want to be alone (BackgroundThreadAbsence), and whether the background threads ended for one
// of them. With `starting`.
constinit int absences = 0;
constinit bool is_ended_for_absence = false;
// Threads in which a context ends. Of several devices they stand side by side for as long as the driver's
// call takes, so they are counted, and none holds the lock.
constinit std::atomic<int> pauses{0};
// When the first of them, or the end of the process, came.
constinit std::atomic<uint64_t> rest_asked_at{0};
constinit Handover handover;

void forget_background_thread() {
  starting.reset_after_fork();
  working.reset_after_fork();
  is_running.store(false, std::memory_order_relaxed);
  is_stopped.store(false, std::memory_order_relaxed);
  pauses.store(0, std::memory_order_relaxed);
  absences = 0;
  is_ended_for_absence = false;
  handover.forget();
  detail::has_background_thread.store(false, std::memory_order_relaxed);
}
CUPOOL_AFTER_FORK(forget_background_thread_after_fork, &forget_background_thread);

bool is_wanted() {
  const config::Options& options = config::options();
  return options.decay_ms != 0 || options.neighbours || *options.metrics_file != '\0' || trace::is_on() ||
         options.trace_signal != config::StatsSignal::kNone;
}

bool is_to_rest() {
  return is_stopped.load(std::memory_order_acquire) || pauses.load(std::memory_order_acquire) != 0;
}

// Asked before each call of the driver. Who stops or pauses the thread waits a moment for it; before that is
// over, the thread leaves the rest of what there is to do undone.
bool goes_on() {
  constexpr uint64_t kQuarterOfAMoment = 5 * kMillisecond;
  return !is_to_rest() || now_ns() - rest_asked_at.load(std::memory_order_relaxed) < kQuarterOfAMoment;
}

void ask_for_rest() {
  if (!is_to_rest()) rest_asked_at.store(now_ns(), std::memory_order_relaxed);
}

// The same while nothing is slept for in between: a handful of calls is made in any case, so that a program
// that ends amid them leaves the same behind however slow the machine is.
constinit int decays_left = 0;
bool decay_goes_on() { return goes_on() || decays_left-- > 0; }

void decay() {
  constexpr int kHandful = 8;
  static constinit uint64_t looked = 0;
  const uint64_t decay_ms = config::options().decay_ms;
  const uint64_t now = now_ns();
  if (decay_ms == 0 || now - looked < std::max<uint64_t>(decay_ms / 4, 1) * kMillisecond || !is_serving())
    return;
  looked = now;
  decays_left = kHandful;
  memory.idle().decay_quiet(decay_goes_on);
}

void play(Round* round) {
  Guard hold(working);
  round->is_done = false;
  // Read under the lock, which a pause takes after it is counted: one of the two sees the other.
  if (is_to_rest()) return;
  answer_neighbours(round->asks, round->ask_count, goes_on);
  decay();
  if (!goes_on()) return;
  note_devices();
  round->figure_count =
      report::read_figures(stats::Reading::kLocked, round->figures, std::size(round->figures));
  round->is_done = true;
}

ThreadEnds work(void*) {
  pthread_t files;
  ThreadEnds how = ThreadEnds::kPlainly;
  if (start_own_thread(work_on_files, &handover, "cupool-files", &files)) {
    while (Round* const round = handover.wait()) {
      follow_capabilities();
      log::say_kept_lines();
      play(round);
      handover.played();
    }
    how = handover.how();
    pthread_join(files, nullptr);
    handover.forget();
  }
  // The last one of the program's threads is the last one of ours.
  if (how == ThreadEnds::kLast) stop_lending();
  for (int i = 0; how == ThreadEnds::kLast && i < 1000 && count_own_threads() > 1; ++i)
    sleep_for(kMillisecond);
  is_running.store(false, std::memory_order_release);
  return how;
}

}  // namespace

void detail::start_background_thread() {
  Guard hold(starting);
  // The end of the last absence comes back here.
  if (absences != 0 || has_background_thread.exchange(true) || !is_wanted()) return;
  if (is_stopped.load(std::memory_order_acquire) || !may_start_threads()) return;
  keep_file_thread();
  is_running.store(true, std::memory_order_release);
  if (!start_own_thread(work, nullptr, "cupool")) is_running.store(false, std::memory_order_release);
}

void note_filters() { had_filter.store(has_filter(), std::memory_order_relaxed); }

bool may_start_threads() { return had_filter.load(std::memory_order_relaxed) || !has_filter(); }

void stop_background_thread() {
  ask_for_rest();
  is_stopped.store(true, std::memory_order_release);
  // A lock held for longer means that the driver does not answer: go on without it.
  if (!working.try_lock_for_a_moment()) return;
  working.unlock();
  // The file thread leaves the registry first.
  for (int turn = 0; turn < kTurnsInAMoment && is_running.load(std::memory_order_acquire); ++turn) {
    if (turn % kTurnsToHear == 0) end_file_thread();
    Lock::wait_a_little(turn);
  }
}

void note_background_thread_lost() {
  note_new_filter();
  trace::abandon();
  is_running.store(false, std::memory_order_release);
}

bool is_background_stopped() { return is_stopped.load(std::memory_order_acquire); }

uint64_t background_period() {
  constexpr uint64_t kSecond = 1000 * kMillisecond;
  const uint64_t decay_ms = config::options().decay_ms;
  // Publish figures at this rate even if memory goes back more rarely.
  return decay_ms == 0 ? kSecond : std::min(std::max<uint64_t>(decay_ms / 4, 1) * kMillisecond, kSecond);
}

BackgroundThreadPause::BackgroundThreadPause() {
  ask_for_rest();
  pauses.fetch_add(1, std::memory_order_acq_rel);
  if (!working.try_lock_for_a_moment()) return;
  working.unlock();
}

BackgroundThreadPause::~BackgroundThreadPause() { pauses.fetch_sub(1, std::memory_order_release); }

BackgroundThreadAbsence::BackgroundThreadAbsence() {
  constexpr int kMostTries = 500;
  const PreserveErrno preserve;
  {
    // No thread begins from here on. The lock is not held while those that there are end, which takes as long
    // as a call of the driver: an allocation of another thread may need it.
    Guard hold(starting);
    ++absences;
  }
  for (int i = 0; i < kMostTries && is_running.load(std::memory_order_acquire); ++i) {
    ended_any_ = true;
    end_file_thread();
    sleep_for(kMillisecond);
  }
}

BackgroundThreadAbsence::~BackgroundThreadAbsence() {
  const PreserveErrno preserve;
  {
    Guard hold(starting);
    is_ended_for_absence = is_ended_for_absence || ended_any_;
    if (--absences != 0 || !is_ended_for_absence) return;
    is_ended_for_absence = false;
    keep_file_thread();
    // Threads that did not hear are still there.
    detail::has_background_thread.store(is_running.load(std::memory_order_acquire));
  }
  note_device_memory();
}

}  // namespace cupool::hooks
