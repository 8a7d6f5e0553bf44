// See trace_switch.hpp.
#include "hooks/process/trace_switch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/output.hpp"
#include "config/options.hpp"
#include "hooks/observe/trace.hpp"
#include "hooks/process/file_thread.hpp"
#include "neighbours/trace_answer.hpp"
#include "report/file.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {
namespace {

using neighbours::AnswerPath;
using neighbours::Ask;

// The trace that a neighbour asked for.
struct Asked {
  bool is_on = false;
  bool is_settled = false;
  uint64_t token = 0;
  uint64_t began = 0;
  uint64_t until = 0;
};
constinit Asked asked;
CUPOOL_AFTER_FORK(trace_switch_after_fork, [] { asked = {}; });

void write_elsewhere(int file) {
  // (What a process knows for CUPOOL_LEAKS alone is in no file.)
  const char* const path = *trace::path() != '\0' ? trace::path() : "in memory alone, for CUPOOL_LEAKS";
  write_fully(file, neighbours::kElsewhere, strlen(neighbours::kElsewhere));
  write_fully(file, path, strlen(path));
}

void begin(const Ask& ask, int file) {
  struct stat about = {};
  report::NewFile place;
  const AnswerPath path(ask.token);
  if (fstat(file, &about) != 0) return;
  memcpy(place.path, path.text, sizeof path.text);
  place.device = about.st_dev;
  place.inode = about.st_ino;
  const uint64_t now = now_ns();
  if (!observe::begin_trace(place)) return;
  trace::set_waker(wake_file_thread_to_gather);
  asked = {true, false, ask.token, now, now + std::min(ask.duration_ns, ~uint64_t{0} - now)};
  observe::tell_what_is_live(now, nullptr);
}

void settle(int* kept) {
  if (!asked.is_settled && trace::is_on()) observe::settle_what_is_live(asked.began, kept);
  asked.is_settled = true;
}

void end() {
  settle(nullptr);
  observe::end_trace();
  // Nobody writes to it any more.
  const AnswerPath path(asked.token);
  const int file = open(path.text, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0) {
    neighbours::complete_answer(file);
    close(file);
  }
  asked = {};
}

void obey(const Ask& ask) {
  if (ask.what == Ask::What::kEndTrace) {
    if (asked.is_on && asked.token == ask.token) end();
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
  } else if (trace::is_on()) {
    write_elsewhere(file);
  } else if (ask.what == Ask::What::kTrace) {
    begin(ask, file);
  }
  if (!asked.is_on || asked.token != ask.token) neighbours::complete_answer(file);
  close(file);
}

}  // namespace

size_t obey_trace_requests(Ask* asks, size_t count) {
  // (The newest comes first.)
  for (size_t i = count; i-- > 0;) {
    if (asks[i].what != Ask::What::kMemory && asks[i].pid != -1) obey(asks[i]);
  }
  const auto is_about_trace = [](const Ask& ask) { return ask.what != Ask::What::kMemory; };
  return static_cast<size_t>(std::remove_if(asks, asks + count, is_about_trace) - asks);
}

void attend_to_trace(int* kept) {
  // As long as a call that knew of no trace may take.
  constexpr uint64_t kMoment = 100'000'000;
  if (!asked.is_on) return;
  const uint64_t now = now_ns();
  if (now - asked.began >= kMoment) settle(kept);
  if (!trace::is_on() || now >= asked.until) end();
}

}  // namespace cupool::hooks
