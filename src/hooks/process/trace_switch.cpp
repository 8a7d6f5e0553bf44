// See trace_switch.hpp.
#include "hooks/process/trace_switch.hpp"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "base/output.hpp"
#include "base/own_call.hpp"
#include "base/preserve_errno.hpp"
#include "config/options.hpp"
#include "hooks/observe/start_stacks.hpp"
#include "hooks/observe/trace.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/process/file_thread.hpp"
#include "neighbours/trace_answer.hpp"
#include "report/facts.hpp"
#include "report/file.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {
namespace {

using neighbours::AnswerPath;
using neighbours::Ask;

// The trace that was begun while the program ran.
struct Asked {
  bool is_on = false;
  bool is_settled = false;
  bool is_neighbours = false;
  uint64_t token = 0;  // of a neighbour
  uint64_t began = 0;
  uint64_t until = ~uint64_t{0};
};
constinit Lock lock{Rank::kTraceSwitch};
constinit Asked asked CUPOOL_GUARDED_BY(lock);
constinit std::atomic<bool> is_to_switch{false};
CUPOOL_AFTER_FORK(trace_switch_after_fork, []() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock.reset_after_fork();
  asked = {};
  is_to_switch.store(false, std::memory_order_relaxed);
});

void write_elsewhere(int file) {
  const char* const path =
      trace::is_written() ? trace::path() : "in memory alone, for CUPOOL_LEAKS or CUPOOL_CHECK";
  write_fully(file, neighbours::kElsewhere, strlen(neighbours::kElsewhere));
  write_fully(file, path, strlen(path));
}

// pre: none goes to a file. What the program holds is told first, unless it is known from the beginning on.
bool begin(const report::NewFile& place, const Asked& as) CUPOOL_REQUIRES(lock) {
  const uint64_t now = now_ns();
  const bool is_known = trace::is_on();
  if (!observe::begin_trace(place)) return false;
  trace::set_waker(wake_file_thread_to_gather);
  asked = as;
  asked.is_on = true;
  asked.began = now;
  asked.is_settled = is_known;
  if (!is_known) observe::tell_what_is_live(now, nullptr);
  return true;
}

void begin_for_neighbour(const Ask& ask, int file) CUPOOL_REQUIRES(lock) {
  struct stat about = {};
  report::NewFile place;
  const AnswerPath path(ask.token);
  if (fstat(file, &about) != 0) return;
  memcpy(place.path, path.text, sizeof path.text);
  place.device = about.st_dev;
  place.inode = about.st_ino;
  const uint64_t now = now_ns();
  begin(place, {.is_neighbours = true,
                .token = ask.token,
                .until = now + std::min(ask.duration_ns, ~uint64_t{0} - now)});
}

// Null, or why there is none.
const char* begin_named(const char* pattern) CUPOOL_REQUIRES(lock) {
  char path[PATH_MAX];
  report::NewFile place;
  report::expand(pattern, report::facts(), path, sizeof path);
  if (const char* const why = report::make_file(path, &place)) return why;
  return begin(place, {}) ? nullptr : "the host has no memory for it";
}

void settle(int* kept) CUPOOL_REQUIRES(lock) {
  if (!asked.is_settled && trace::is_on()) observe::settle_what_is_live(asked.began, kept);
  asked.is_settled = true;
}

void end() CUPOOL_REQUIRES(lock) {
  if (asked.is_on) settle(nullptr);
  observe::end_trace();
  // Nobody writes to it any more.
  const AnswerPath path(asked.token);
  const int file = asked.is_neighbours ? open(path.text, O_WRONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
  if (file >= 0) {
    neighbours::complete_answer(file);
    close(file);
  }
  asked = {};
}

void obey(const Ask& ask) CUPOOL_REQUIRES(lock) {
  const auto is_its = [&]() CUPOOL_REQUIRES(lock) {
    return asked.is_on && asked.is_neighbours && asked.token == ask.token;
  };
  if (ask.what == Ask::What::kEndTrace) {
    if (is_its()) end();
    return;
  }
  if (ask.what != Ask::What::kTrace && ask.what != Ask::What::kTellTrace) return;
  const int file = neighbours::make_answer(AnswerPath(ask.token));
  if (file < 0) return;
  if (trace::is_on() && trace::is_kept()) {
    int descriptor = file;
    trace::visit_kept(
        [](const void* data, size_t bytes, void* where) {
          write_fully(*static_cast<int*>(where), static_cast<const char*>(data), bytes);
        },
        &descriptor);
  } else if (trace::is_written() || (trace::is_on() && ask.what != Ask::What::kTrace)) {
    write_elsewhere(file);
  } else if (ask.what == Ask::What::kTrace) {
    begin_for_neighbour(ask, file);
  }
  // What the program does from now on is recorded.
  is_its() ? neighbours::begin_answer(file) : neighbours::complete_answer(file);
  close(file);
}

void switch_now() CUPOOL_REQUIRES(lock) {
  if (trace::is_written()) return end();
  if (trace::is_kept()) return;
  const char* const why = begin_named(config::options().trace);
  if (why != nullptr) log::line("cannot write the trace {}: {}; there is none", config::options().trace, why);
}

}  // namespace

size_t obey_trace_requests(Ask* asks, size_t count) {
  const auto is_about_trace = [](const Ask& ask) { return ask.what != Ask::What::kMemory; };
  // What nobody else may do meanwhile waits a moment: who asks waits longer.
  if (std::any_of(asks, asks + count, is_about_trace) && lock.try_lock_for_a_moment()) {
    // (The newest comes first.)
    for (size_t i = count; i-- > 0;) {
      if (is_about_trace(asks[i]) && asks[i].pid != -1) obey(asks[i]);
    }
    lock.unlock();
  }
  return static_cast<size_t>(std::remove_if(asks, asks + count, is_about_trace) - asks);
}

void attend_to_trace(int* kept) {
  // As long as a call that knew of no trace may take.
  constexpr uint64_t kMoment = 100'000'000;
  if (!lock.try_lock()) return;
  if (is_to_switch.exchange(false, std::memory_order_acq_rel)) switch_now();
  if (asked.is_on) {
    const uint64_t now = now_ns();
    if (now - asked.began >= kMoment) settle(kept);
    if (!trace::is_written() || now >= asked.until) end();
  }
  lock.unlock();
}

Switched begin_trace_now(const char* pattern) {
  const OwnCall own;
  const PreserveErrno preserve;
  // Opens libraries, which no thread may wait for.
  observe::start_stacks();
  if (!lock.try_lock_for_a_moment()) return Switched::kNotNow;
  Switched how = Switched::kNotNow;
  if (!trace::is_written() && !trace::is_kept())
    how = begin_named(pattern) == nullptr ? Switched::kDone : Switched::kNoSuchFile;
  lock.unlock();
  // It writes what is recorded from now on.
  if (how == Switched::kDone) note_device_memory();
  return how;
}

Switched end_trace_now() {
  const OwnCall own;
  const PreserveErrno preserve;
  if (!lock.try_lock_for_a_moment()) return Switched::kNotNow;
  const bool is_written = trace::is_written();
  if (is_written) end();
  lock.unlock();
  return is_written ? Switched::kDone : Switched::kNotNow;
}

void switch_trace_soon() {
  is_to_switch.store(true, std::memory_order_release);
  wake_file_thread_to_gather();
}

}  // namespace cupool::hooks
