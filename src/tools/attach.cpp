// See attach.hpp.
#include "tools/attach.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/say.hpp"
#include "neighbours/trace_answer.hpp"
#include "tools/commands.hpp"
#include "tools/registries.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

using neighbours::AnswerPath;
using neighbours::Ask;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kBetweenLooks = kSecond / 50;
// How long a process is given to begin, and to end.
constexpr uint64_t kPatience = 5 * kSecond;

volatile sig_atomic_t is_interrupted = 0;

// The file that a process made for a request. Whoever else makes one of that name is not its user.
class AnswerFile {
 public:
  AnswerFile(int64_t pid, uint64_t token)
      : pid_(pid), here_(token), there_(token, make_text("/proc/{}/root/tmp", pid).c_str()) {}
  ~AnswerFile() {
    if (file_ >= 0) close(file_);
    // (Of the two, one is the other, or is not there.)
    if (is_made_) {
      unlink(there_.text);
      unlink(here_.text);
    }
  }
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  bool look() {
    for (const AnswerPath* const path : {&there_, &here_}) {
      if (file_ < 0) file_ = open(path->text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    struct stat process = {};
    if (file_ < 0 || fstat(file_, &about_) != 0 || stat(make_text("/proc/{}", pid_).c_str(), &process) != 0)
      return is_made_;
    is_made_ = S_ISREG(about_.st_mode) && neighbours::has_begun(about_) &&
               (about_.st_uid == process.st_uid || about_.st_uid == geteuid());
    return is_made_;
  }
  bool is_complete() { return look() && neighbours::is_complete(about_); }
  // Whether the process is there, which may be another user's.
  bool is_process_there() const { return kill(static_cast<pid_t>(pid_), 0) == 0 || errno == EPERM; }
  uint64_t bytes() const { return static_cast<uint64_t>(about_.st_size); }
  // Where the process records already; empty: nowhere else.
  std::string elsewhere() const {
    constexpr size_t kMost = 4096 + sizeof neighbours::kElsewhere;
    std::string text(kMost, '\0');
    const ssize_t size = pread(file_, text.data(), text.size(), 0);
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return text.starts_with(neighbours::kElsewhere) ? text.substr(strlen(neighbours::kElsewhere)) : "";
  }
  // To a file that does not exist. Empty, or why not.
  std::string copy_to(int out) const {
    std::vector<char> piece(256 << 10);
    ssize_t size = 0;
    for (off_t at = 0; (size = pread(file_, piece.data(), piece.size(), at)) > 0; at += size) {
      for (ssize_t done = 0; done < size;) {
        const ssize_t written = write(out, piece.data() + done, static_cast<size_t>(size - done));
        if (written < 0) return strerror(errno);
        done += written;
      }
    }
    return size < 0 ? strerror(errno) : "";
  }

 private:
  int64_t pid_;
  AnswerPath here_;
  AnswerPath there_;
  struct stat about_ = {};
  int file_ = -1;
  bool is_made_ = false;
};

uint64_t make_token() {
  uint64_t token = 0;
  return getrandom(&token, sizeof token, 0) == sizeof token ? token : now_ns();
}

void sleep_until_next_look() { usleep(kBetweenLooks / 1000); }

Ask make_ask(Ask::What what, int64_t pid, uint64_t token, uint64_t duration = 0) {
  Ask ask{};
  ask.every_device = true;
  ask.pid = pid;
  ask.what = what;
  ask.token = token;
  ask.duration_ns = duration;
  return ask;
}

bool is_there(Registries& registries, int64_t pid, std::string* program) {
  registries.ask({{}, true, pid, 0, 0}, 100);
  for (const Neighbour& one : registries.read()) {
    if (!one.entry.same_namespace || one.entry.pid != pid) continue;
    *program = printable(one.entry.program);
    return true;
  }
  return false;
}

bool parse_time(const std::string& text, uint64_t* ns) {
  *ns = ~uint64_t{0};
  if (text.empty()) return true;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const std::string unit(at, end);
  const double scale = unit.empty() || unit == "s" ? 1
                       : unit == "ms"              ? 1e-3
                       : unit == "m"               ? 60
                       : unit == "h"               ? 3600
                                                   : 0;
  constexpr double kMost = 1e7;
  if (error != std::errc() || scale == 0 || !(value > 0) || value * scale > kMost) return false;
  *ns = static_cast<uint64_t>(std::llround(value * scale * 1e9));
  return true;
}

}  // namespace

int attach(const Arguments& arguments, int64_t pid) {
  uint64_t duration = 0;
  if (!parse_time(arguments.value("--for"), &duration)) {
    say(stderr, "cupool: {} is no time; --for takes seconds, or 500ms, 5m or 2h\n",
        printable(arguments.value("--for")));
    return kMisuse;
  }
  Registries registries;
  if (!registries.any()) {
    registries.explain_none();
    return 1;
  }
  registries.warn_left_out();
  std::string program;
  if (!is_there(registries, pid, &program)) {
    say(stderr, "cupool: process {} is not in the registry; cupool top lists those that are\n", pid);
    return 1;
  }
  std::string to = arguments.value("-o");
  if (to.empty()) {
    to = make_text("{}-{}.trace", program, pid);
    for (char& c : to) c = c == '/' ? '_' : c;
  }
  const int out = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (out < 0) {
    say(stderr, "cupool: cannot write {}: {}\n", printable(to), strerror(errno));
    return 1;
  }
  const auto give_up = [&] {
    unlink(to.c_str());
    return 1;
  };
  struct sigaction interrupt = {};
  interrupt.sa_handler = [](int) { is_interrupted = 1; };
  sigaction(SIGINT, &interrupt, nullptr);
  sigaction(SIGTERM, &interrupt, nullptr);
  const uint64_t token = make_token();
  AnswerFile answer(pid, token);
  const uint64_t began = now_ns();
  registries.ask(make_ask(Ask::What::kTrace, pid, token, duration), 0);
  while (!answer.look() && now_ns() - began < kPatience && is_interrupted == 0) sleep_until_next_look();
  if (!answer.look()) {
    registries.ask(make_ask(Ask::What::kEndTrace, pid, token), 0);
    say(stderr,
        "cupool: process {} does not answer: it may run an older cupool, or may not write files to /tmp\n",
        pid);
    return give_up();
  }
  if (!answer.is_complete()) {
    if (duration == ~uint64_t{0}) say(stderr, "cupool: recording {}[{}]; Ctrl-C ends it\n", program, pid);
    const uint64_t until = duration > ~uint64_t{0} - began ? ~uint64_t{0} : began + duration;
    while (!answer.is_complete() && answer.is_process_there() && now_ns() < until && is_interrupted == 0)
      sleep_until_next_look();
    if (is_interrupted != 0) registries.ask(make_ask(Ask::What::kEndTrace, pid, token), 0);
    const uint64_t ends = now_ns();
    while (!answer.is_complete() && answer.is_process_there() && now_ns() - ends < kPatience)
      sleep_until_next_look();
  }
  if (const std::string path = answer.elsewhere(); !path.empty()) {
    say(stderr, "cupool: process {} records a trace already: {}\n", pid, printable(path));
    return give_up();
  }
  const std::string why = answer.copy_to(out);
  if (close(out) != 0 || !why.empty()) {
    say(stderr, "cupool: cannot write {}: {}\n", printable(to), why.empty() ? strerror(errno) : why);
    return give_up();
  }
  say("{}: {} of {}[{}]; cupool trace {} shows it\n", printable(to), print_bytes(answer.bytes()), program,
      pid, printable(to));
  return 0;
}

std::string find_trace_of(int64_t pid) {
  Registries registries;
  if (!registries.any()) return {};
  const uint64_t token = make_token();
  AnswerFile answer(pid, token);
  const uint64_t began = now_ns();
  registries.ask(make_ask(Ask::What::kTellTrace, pid, token), 0);
  while (!answer.is_complete() && now_ns() - began < kSecond) sleep_until_next_look();
  return answer.look() ? answer.elsewhere() : "";
}

}  // namespace cupool::tools
