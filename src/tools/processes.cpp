// See processes.hpp.
#include "tools/processes.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "base/preserve_errno.hpp"
#include "base/say.hpp"
#include "neighbours/identity.hpp"
#include "report/ledger.hpp"

namespace cupool::tools {
namespace {

// For processes that the program leaves behind: what a program does in the background at its end, but no
// service that it starts.
constexpr uint64_t kPatienceNs = 10'000'000'000;
constexpr uint64_t kBetweenLooksNs = 5'000'000;

std::string name_of_signal(int number) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
      {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"},
      {SIGPIPE, "SIGPIPE"}, {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},
      {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
      {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
  for (const auto& [one, name] : kNames) {
    if (one == number) return name;
  }
  return "signal " + std::to_string(number);
}

using Statuses = std::map<pid_t, int>;

// True: there are no processes left. Only descendants of the program are children here.
bool reap(Statuses* statuses) {
  for (;;) {
    int status = 0;
    const pid_t done = waitpid(-1, &status, WNOHANG);
    if (done > 0) (*statuses)[done] = status;
    if (done == 0) return false;
    if (done < 0 && errno != EINTR) return true;
  }
}

Report report_of(const report::Ledger& ledger) {
  std::map<std::string, uint64_t> counts = {{"pid", static_cast<uint64_t>(ledger.who.pid)}};
  stats::visit(ledger.sums,
               [&](const stats::CounterInfo& info, uint64_t value) { counts[info.name] = value; });
  return {std::move(counts),
          {{"program", ledger.program},
           {"mode", ledger.mode},
           {"mode_reason", ledger.mode_reason},
           {"shortage", ledger.shortage}},
          ledger.sums.devices.fragmentation(),
          ledger.shortage_advice};
}

bool is_same_process(const neighbours::Identity& a, const neighbours::Identity& b) {
  return a.pid == b.pid && a.start == b.start && a.pid_namespace == b.pid_namespace;
}

End end_of(const report::Ledger& ledger, const std::vector<report::Ledger>& later, const Statuses& statuses,
           const neighbours::Identity& self) {
  using neighbours::Life;
  // One of the same process that came later: exec keeps the process.
  for (const report::Ledger& other : later) {
    if (is_same_process(other.who, ledger.who)) return {End::How::kReplaced, 0};
  }
  if (ledger.who.pid_namespace == self.pid_namespace) {
    const auto known = statuses.find(static_cast<pid_t>(ledger.who.pid));
    if (known != statuses.end()) return End::of_status(known->second);
  }
  neighbours::Processes processes(self, geteuid());
  if (processes.life_of(ledger.who) == Life::kLives) return {End::How::kRuns, 0};
  if (ledger.has_ended) return {End::How::kEnded, 0};
  // A process of another user looks as if it were gone, and one of another pid namespace cannot be looked
  // for.
  const bool is_gone = ledger.who.pid_namespace == self.pid_namespace &&
                       kill(static_cast<pid_t>(ledger.who.pid), 0) != 0 && errno == ESRCH;
  return {is_gone ? End::How::kCutOff : End::How::kUnknown, 0};
}

// "12", "12.2": the second is of the image that exec put in the place of the first.
bool comes_before(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

End End::of_status(int status) {
  return WIFEXITED(status) ? End{How::kExited, WEXITSTATUS(status)} : End{How::kKilled, WTERMSIG(status)};
}

std::string End::words() const {
  switch (how) {
    case How::kUnknown:
      return "";
    case How::kRuns:
      return "still runs";
    case How::kExited:
      return "ended with exit code " + std::to_string(number);
    case How::kKilled:
      return "was killed by " + name_of_signal(number) +
             (number == SIGKILL ? ", as by kill -9 or because the host ran out of memory" : "");
    case How::kEnded:
      return "ended by itself";
    case How::kReplaced:
      return "became another program";
    case How::kCutOff:
      return "ended without its exit handlers, as by a signal or quick_exit, or became another program";
  }
  return "";
}

void keep_counts(const Scratch& scratch) {
  // The counts are all that is read; a report at exit would only mix with the program's output.
  setenv("CUPOOL_STATS", "off", 1);
  unsetenv("CUPOOL_STATS_FILE");
  setenv("CUPOOL_COUNTS_FILE", (scratch.path() + "/%p").c_str(), 1);
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

Outcome wait_for_all(pid_t program, const Scratch& scratch) {
  Outcome out;
  const int status = program < 0 ? -1 : Scratch::wait_for(program);
  if (status < 0) return out;
  out.program = End::of_status(status);
  out.ended_ns = now_ns();
  Statuses statuses = {{program, status}};
  while (out.has_running = !reap(&statuses), out.has_running) {
    if (Scratch::is_interrupted() || now_ns() - out.ended_ns > kPatienceNs) break;
    sleep_for(kBetweenLooksNs);
  }
  std::vector<std::string> names = scratch.names();
  std::sort(names.begin(), names.end(), comes_before);
  std::vector<report::Ledger> ledgers;
  for (const std::string& name : names) {
    std::string error;
    if (auto one = report::Ledger::read((scratch.path() + "/" + name).c_str(), &error)) {
      ledgers.push_back(std::move(*one));
    } else if (!error.empty()) {
      out.faults.push_back(make_text("The counts of process {} cannot be read: {}.", name, error));
    }
  }
  const neighbours::Identity self = neighbours::own_identity();
  for (size_t i = 0; i < ledgers.size(); ++i) {
    const std::vector<report::Ledger> later(ledgers.begin() + static_cast<ptrdiff_t>(i) + 1, ledgers.end());
    const report::Ledger& one = ledgers[i];
    out.processes.push_back(
        {one.who.pid, report_of(one), end_of(one, later, statuses, self), one.is_whole, one.device_use, {}});
  }
  return out;
}

}  // namespace cupool::tools
