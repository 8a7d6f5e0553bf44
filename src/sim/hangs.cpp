// How a hang is proven. Nothing can run on the device, so only the host can change anything: if every thread
// of the process either waits here, or sleeps in a futex without a timeout, none is left to wake another.
// Threads are looked at twice: one that did not run in between (its count of switches stands still) slept all
// the while, so at one moment all of them slept. Between the looks the judge tries once more whether anything
// runs: a thread may write a word after the last try, and then sleep. A thread on its way in is counted by
// the state mutex before it sleeps on it. A thread that waits here may still have to notice that its wait is
// over: on a busy machine it can be kept from the processor for longer than the judge needs. What it waits
// for changes with state().progress only, so it stands if it has looked since that last changed. What cannot
// be proven so (a thread in a system call, a word that another process may write) is given
// CUPOOL_SIM_HANG_MS, and so many looks in that time: neither this process nor its machine stood still.
// Under the state mutex.
#include "sim/hangs.hpp"

#include <dirent.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/clock.hpp"
#include "base/say.hpp"
#include "sim/asked_waits.hpp"
#include "sim/calls.hpp"
#include "sim/host_functions.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {
namespace {

constexpr unsigned kFirstLook = 100;  // rounds in which nothing moved
constexpr unsigned kNextLook = 500;
constexpr std::uint64_t kMostMsPerLook = 10;  // on average; where nothing disturbs it, a look takes 0.1 ms
constexpr std::size_t kTold = 6;              // reasons told for one side

std::string read_file(const std::string& path) {
  std::string text;
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return text;
  char part[4096];
  for (std::size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, n);
  std::fclose(file);
  return text;
}

bool waits_here(int tid) {
  const auto& all = state().waiting;
  return std::any_of(all.begin(), all.end(), [&](const WaitingThread* one) { return one->tid == tid; });
}

// Whether the thread sleeps until another wakes it: in a futex, with no timeout.
bool sleeps_for_good(const std::string& task) {
  const std::string call = read_file(task + "/syscall");
  // "98 0x7f… 0x80 0x2 0x0 …"; "running" where it does not sleep.
  const char* const begin = call.data();
  const char* const end = begin + call.size();
  long number = 0;
  unsigned long long arguments[4] = {};
  std::from_chars_result read = std::from_chars(begin, end, number);
  for (unsigned long long& argument : arguments) {
    if (read.ec != std::errc() || end - read.ptr < 3) return false;
    read = std::from_chars(read.ptr + 3, end, argument, 16);
  }
  if (read.ec != std::errc()) return false;
  const auto operation = static_cast<unsigned>(arguments[1]) & static_cast<unsigned>(FUTEX_CMD_MASK);
  return number == SYS_futex && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) &&
         arguments[3] == 0;
}

// How often a thread that sleeps was switched; empty: it does not sleep. A thread that is being woken, but
// not yet by the processor that it will run on, still shows the system call that it slept in; its state
// tells.
std::string switches_if_asleep(const std::string& task) {
  const std::string text = read_file(task + "/status");
  const std::size_t at = text.find("voluntary_ctxt_switches");
  const bool is_asleep = text.find("State:\tS") != std::string::npos;
  return !is_asleep || at == std::string::npos ? std::string() : text.substr(at);
}

// The threads that do not wait here, with their counts of switches; nothing: one of them does not sleep.
std::optional<std::map<int, std::string>> sleeping_threads() {
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return std::nullopt;
  bool all = true;
  std::map<int, std::string> seen;
  while (const dirent* const entry = readdir(tasks)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
    const int tid = std::atoi(entry->d_name);
    if (tid == 0 || waits_here(tid)) continue;
    const std::string task = std::string("/proc/self/task/") + entry->d_name;
    const std::string before = switches_if_asleep(task);
    all = all && !before.empty() && sleeps_for_good(task);
    seen[tid] = before;
  }
  closedir(tasks);
  if (!all) return std::nullopt;
  return seen;
}

// Whether no thread that waits here has still to notice a change.
bool all_have_looked() {
  const auto& all = state().waiting;
  return std::all_of(all.begin(), all.end(),
                     [](const WaitingThread* one) { return one->progress == state().progress; });
}

// `before`: the threads that slept before the last try to run anything.
bool nobody_can_move(const std::map<int, std::string>& before) {
  return !state().shared_with_processes && sleeping_threads() == before && all_have_looked() &&
         !state().mutex.has_callers() && !is_starting_host_function();
}

// What of `after` is not done yet, as lines; each says whose wait makes it so.
std::string reasons(const VectorClock& after, const std::string& added_by) {
  std::string text;
  std::size_t told = 0;
  const State& s = state();
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto id = static_cast<TimelineId>(i);
    if (s.timelines[i].completed >= after.at(id)) continue;
    if (++told > kTold) return text + "        and more\n";
    text += "        for " + describe_position(id, after.at(id));
    const bool own = s.timelines[i].completed < after.own_at(id);
    text +=
        own ? ", as the application asked\n" : ", only because of a wait that was added" + added_by + "\n";
  }
  return text;
}

std::string stuck_stream(const Stream& stream) {
  const Op& head = stream.queue.front();
  std::string text = "    " + describe_stream(stream) + " of context " + std::to_string(stream.context->id) +
                     " waits before its operation " +
                     std::to_string(state().timelines[stream.timeline].completed + 1) + " (" +
                     head.work->what + ")\n";
  if (stream.in_host_function) return text + "        in a host function that does not return\n";
  std::string added_by;
  for (const auto& [clock, story] : stream.context->added_waits) {
    if (!done(clock)) added_by = ": " + story;
  }
  const std::string why = reasons(head.after, added_by);
  return text + (why.empty() ? "        for a word in memory that nobody has written\n" : why);
}

std::string stuck_thread(const WaitingThread& thread) {
  std::string text = "    thread " + std::to_string(thread.origin.thread) + " waits in " + thread.call +
                     ", made " + describe(thread.origin) + "\n";
  if (thread.longer_than_asked)
    text += "        (a wait that was added: the application did not ask for it)\n";
  return text + reasons(*thread.target, "");
}

// The calls that neither wait in the driver nor end, since then at the latest.
template <typename F>
void each_stuck_call(std::uint64_t since_ns, F&& visit) {
  each_call_under_way([&](const CallUnderWay& one) {
    if (one.since_ns <= since_ns && !waits_here(one.tid)) visit(one);
  });
}

std::string tell(std::uint64_t since_ns) {
  std::string text;
  for (const WaitingThread* thread : state().waiting) text += stuck_thread(*thread);
  for (const auto& stream : state().busy) text += stuck_stream(*stream);
  each_stuck_call(since_ns, [&](const CallUnderWay& one) {
    text += "    a thread does not come back from its " + std::string(one.call.name) +
            " (in the preloaded library)\n";
  });
  return text;
}

// Takes every added wait away, lets run what then can, and looks whether a waiting thread goes on, or one
// that stands inside the library, at a lock or a gate of it. A thread that only asks is not among those: for
// it, anything that runs will do.
bool goes_on_without_added_waits(bool asks, std::uint64_t since_ns) {
  State& s = state();
  const auto released = [](const WaitingThread* thread) {
    const bool added = thread->longer_than_asked && !stands_by_itself(thread->observed);
    return added || done(*thread->target);
  };
  s.without_added_waits = true;
  while (true) {
    if (std::any_of(s.waiting.begin(), s.waiting.end(), released)) return true;
    bool returns = false;
    each_stuck_call(since_ns, [&](const CallUnderWay& one) { returns = returns || would_return(one.call); });
    if (returns) return true;
    bool host_function = false;
    if (!run_anything(host_function)) return false;
    if (host_function || asks) return true;
  }
}

[[noreturn]] void end_process(const std::string& proof, const std::string& story, bool added) {
  say(stderr, "cupool-sim: {}, seed {} ({})\n{}",
      added ? "a hang that only the preloaded library causes" : "the program itself hangs", options().seed,
      proof, trusted(story));
  end_with_report(added ? kHangExit : kOwnHangExit);
}

[[noreturn]] void end_hung(const std::string& proof, std::uint64_t since_ns, bool asks = false) {
  const std::string story = tell(since_ns);
  end_process(proof, story, goes_on_without_added_waits(asks, since_ns));
}

bool too_long(std::uint64_t since_ns, unsigned looks) {
  const std::uint64_t limit = options().hang_ms;
  return limit != 0 && now_ns() - since_ns > limit * 1000000u && looks > limit / kMostMsPerLook;
}

std::string for_so_long() { return "nothing moved for " + std::to_string(options().hang_ms) + " ms"; }

thread_local WaitingThread asking;

}  // namespace

Waiting::Waiting(const VectorClock& target) {
  self_.target = &target;
  self_.call = thread_state.call;
  self_.origin = present_origin();
  self_.observed = observed_call;
  self_.tid = static_cast<int>(syscall(SYS_gettid));
  self_.longer_than_asked = state().added_waits.is_longer_than_asked(target);
  self_.since_ns = now_ns();
  self_.progress = state().progress;
  state().waiting.push_back(&self_);
}

Waiting::~Waiting() {
  auto& all = state().waiting;
  all.erase(std::find(all.begin(), all.end(), &self_));
}

void Waiting::for_others() {
  State& s = state();
  if (self_.progress != s.progress) {
    self_.progress = s.progress;
    self_.idle = 0;
    self_.since_ns = now_ns();
    asleep_.reset();
  }
  ++self_.idle;
  if (asleep_ && nobody_can_move(*asleep_)) end_hung("no thread can go on", now_ns());
  asleep_.reset();
  if (options().hang_ms != 0 && (self_.idle == kFirstLook || self_.idle % kNextLook == 0)) {
    if (too_long(self_.since_ns, self_.idle)) end_hung(for_so_long(), self_.since_ns);
    asleep_ = sleeping_threads();
  }
  s.mutex.unlock();
  usleep(20);
  s.mutex.lock_again();
}

void asked_in_vain() {
  State& s = state();
  if (asking.progress != s.progress || asking.since_ns == 0) {
    asking.progress = s.progress;
    asking.since_ns = now_ns();
    asking.idle = 0;
  }
  if (++asking.idle % kNextLook != 0 || !too_long(asking.since_ns, asking.idle)) return;
  end_hung(for_so_long(), asking.since_ns, true);
}

}  // namespace cupool::sim
