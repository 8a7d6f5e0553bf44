// See report.hpp. Two desks, each with a stack and a buffer: one for the report at exit, one for reports
// requested by a signal or a call. A desk is claimed through a flag. The thread at a desk has all signals
// blocked and cannot be cancelled, so a claimed desk always belongs to another thread, which can be waited
// for.
#include "report/report.hpp"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/filters.hpp"
#include "base/log.hpp"
#include "base/output.hpp"
#include "base/own_stack.hpp"
#include "config/options.hpp"
#include "report/figures.hpp"
#include "report/file.hpp"
#include "report/forms.hpp"
#include "report/ledger.hpp"
#include "report/metrics.hpp"
#include "trace/recorder.hpp"

namespace cupool::report {
namespace {

using config::StatsForm;
using stats::Reading;

constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kBufferBytes = 32 * 1024;
constexpr pid_t kInit = 1;

struct Desk {
  std::atomic<pid_t> writer{0};  // the thread at it; 0: none
  Stack<kStackBytes> stack;
  char buffer[kBufferBytes];
};
constinit Desk end_desk{};
constinit Desk dump_desk{};
constinit Written last_report{};
constinit Written last_metrics{.mode = 0644};
constinit Written last_trace{};
constinit log::Once told_metrics;
constinit std::atomic<bool> ending{false};
constinit std::atomic<int> owner{
    0};  // the process that used CUDA; a vfork child shares our memory but is not it

pid_t own_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// Keeps the program's signal handlers off this thread: a handler that ends the process would leave half a
// report, and one that requests a report would find the desk claimed by its own thread.
class Undisturbed {
 public:
  Undisturbed() {
    sigset_t all;
    sigfillset(&all);
    // Our own faults must not be hidden.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~Undisturbed() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  sigset_t before_;
  CancelShield shield_;
};

// Sequentially consistent with `ending`: either the dump sees that the exit has begun, or the exit sees the
// dump at its desk.
bool sit_down(Desk& desk) {
  pid_t nobody = 0;
  return desk.writer.compare_exchange_strong(nobody, own_thread(), std::memory_order_seq_cst);
}

void stand_up(Desk& desk) { desk.writer.store(0, std::memory_order_release); }

// Another thread is writing at the desk; the process must not end before it is done. Bounded: its disk may
// hang.
void wait_for(const Desk& desk) {
  constexpr int kMostTurns = 10'000;
  const pid_t self = own_thread();
  for (int i = 0; i < kMostTurns; ++i) {
    const pid_t writer = desk.writer.load(std::memory_order_seq_cst);
    if (writer == 0 || writer == self) return;
    const timespec moment{0, 1'000'000};
    syscall(SYS_nanosleep, &moment, nullptr);
  }
}

struct Order {
  StatsForm form;
  Reading reading;
};

void write_form(Writer& out, const void* argument) {
  const Order& order = *static_cast<const Order*>(argument);
  const Facts who = facts();
  if (order.form == StatsForm::kSummary) write_summary(out, who, order.reading);
  if (order.form == StatsForm::kText) write_text(out, who, order.reading);
  if (order.form == StatsForm::kJson) write_json(out, who, order.reading);
}

void write_to_stderr(Desk& desk, const Order& order) {
  Writer out(STDERR_FILENO, desk.buffer, sizeof desk.buffer);
  write_form(out, &order);
  out.flush();
}

void write_to_named_file(Desk& desk, const Order& order) {
  char path[PATH_MAX];
  expand(config::options().stats_file, facts(), path, sizeof path);
  const char* const why = write_file(path, last_report, desk.buffer, sizeof desk.buffer, write_form, &order);
  if (why == nullptr) return;
  log::line("cannot write the report to {}: {}; it follows here", path, why);
  write_to_stderr(desk, order);
}

// The process's figures as they are, or as another thread has read them.
struct Metrics {
  Reading reading;
  const neighbours::Figures* figures;  // null: to be read
  size_t count;
};

void write_process_metrics(Writer& out, const void* argument) {
  const auto& metrics = *static_cast<const Metrics*>(argument);
  neighbours::Entry entries[neighbours::Registry::kMostDevices];
  size_t count = std::min(metrics.count, std::size(entries));
  if (metrics.figures != nullptr) {
    make_entries(metrics.figures, count, entries);
  } else {
    count = read_entries(metrics.reading, entries, std::size(entries));
  }
  write_metrics(out, entries, count);
}

void write_metrics_file(Desk& desk, const Metrics& metrics) {
  const char* const pattern = config::options().metrics_file;
  if (*pattern == '\0') return;
  char path[PATH_MAX];
  expand(pattern, facts(), path, sizeof path);
  const char* const why =
      write_file(path, last_metrics, desk.buffer, sizeof desk.buffer, write_process_metrics, &metrics);
  if (why != nullptr && told_metrics.first()) log::line("cannot write the metrics to {}: {}", path, why);
}

// The form of a report file when the user chose none.
StatsForm form_for_file(const char* name) {
  const size_t size = strlen(name);
  return size >= 5 && strcmp(name + size - 5, ".json") == 0 ? StatsForm::kJson : StatsForm::kText;
}

struct Job {
  Desk& desk;
  Order order;
};

struct MetricsJob {
  Desk& desk;
  Metrics metrics;
};

void write_metrics_at_desk(void* argument) {
  const MetricsJob& job = *static_cast<const MetricsJob*>(argument);
  write_metrics_file(job.desk, job.metrics);
}

void write_at_desk(void* argument) {
  const Job& job = *static_cast<const Job*>(argument);
  const char* const file = config::options().stats_file;
  const bool is_summary = job.order.form == StatsForm::kSummary;
  if (*file == '\0' || is_summary) write_to_stderr(job.desk, job.order);
  if (*file != '\0')
    write_to_named_file(job.desk, is_summary ? Order{form_for_file(file), job.order.reading} : job.order);
}

// pre: this thread sits at the desk.
void write(Desk& desk, const Order& order) {
  const int saved_errno = errno;
  Job job{desk, order};
  if (order.form != StatsForm::kOff) cupool_call_on_stack(desk.stack.top(), write_at_desk, &job);
  errno = saved_errno;
}

// pre: this thread sits at the desk.
void write_metrics(Desk& desk, const Metrics& metrics) {
  const int saved_errno = errno;
  MetricsJob job{desk, metrics};
  cupool_call_on_stack(desk.stack.top(), write_metrics_at_desk, &job);
  errno = saved_errno;
}

// What a trace has kept in memory.
void write_trace_pieces(Writer& out, const void*) {
  trace::visit_kept(
      [](const void* data, size_t bytes, void* to) {
        static_cast<Writer*>(to)->text({static_cast<const char*>(data), bytes});
      },
      &out);
}

void write_kept_trace_at_desk(void* argument) {
  Desk& desk = *static_cast<Desk*>(argument);
  char path[PATH_MAX];
  expand(config::options().trace, facts(), path, sizeof path);
  const char* const why =
      write_file(path, last_trace, desk.buffer, sizeof desk.buffer, write_trace_pieces, nullptr);
  if (why != nullptr) log::line("cannot write the trace {}: {}", path, why);
}

// pre: this thread sits at the desk.
void write_kept_trace(Desk& desk) {
  const int saved_errno = errno;
  if (trace::is_kept()) cupool_call_on_stack(desk.stack.top(), write_kept_trace_at_desk, &desk);
  errno = saved_errno;
}

// pre: this thread sits at the desk.
void finish_trace(Desk& desk) {
  const int saved_errno = errno;
  if (trace::is_on())
    cupool_call_on_stack(
        desk.stack.top(), [](void*) { trace::finish(); }, nullptr);
  errno = saved_errno;
}

bool is_ours() { return owner.load(std::memory_order_relaxed) == getpid(); }

void on_deadly_signal(int signal_number) {
  const int saved_errno = errno;
  finish(Ending::kAbrupt);
  // Only now: until the report is written, a second signal on another thread must wait for it too.
  signal(signal_number, SIG_DFL);
  raise(signal_number);
  errno = saved_errno;
}

void on_dump_signal(int) {
  const int saved_errno = errno;
  dump();
  errno = saved_errno;
}

void on_trace_signal(int) {
  const int saved_errno = errno;
  if (is_ours() && probe().switch_trace != nullptr) probe().switch_trace();
  errno = saved_errno;
}

void on_quick_exit() { finish(Ending::kAbrupt); }

void handle(int signal_number, void (*handler)(int)) {
  struct sigaction now;
  if (sigaction(signal_number, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours = {};
  ours.sa_handler = handler;
  sigfillset(&ours.sa_mask);
  ours.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(signal_number, &ours, nullptr);
}

bool wants_full_report(const config::Options& options) {
  return options.stats != StatsForm::kSummary || *options.stats_file != '\0';
}

void handle_deadly_signals(const config::Options& options) {
  // Process 1 of a container does not die of these signals by default, so re-raising has no effect: it would
  // use up its final report and live on. There, each signal dumps a report instead.
  const bool survives = getpid() == kInit;
  const bool is_asked = wants_full_report(options) || *options.trace != '\0';
  if (survives && !is_asked) return;
  for (const int deadly : {SIGTERM, SIGINT, SIGHUP})
    handle(deadly, survives ? on_dump_signal : on_deadly_signal);
  if (is_asked) handle(SIGABRT, on_deadly_signal);
}

}  // namespace

void begin(const Probe& probe) {
  set_probe(probe);
  note_facts();
  begin_ledger();
  // In a fork child, desks claimed by the parent's threads are free.
  for (Desk* const desk : {&end_desk, &dump_desk}) desk->writer.store(0, std::memory_order_relaxed);
  ending.store(false, std::memory_order_relaxed);
  owner.store(getpid(), std::memory_order_relaxed);
  const config::Options& options = config::options();
  if (options.stats_exact) stats::set_peak_bound(0);
  if (options.stats_signal == config::StatsSignal::kUsr1) handle(SIGUSR1, on_dump_signal);
  if (options.stats_signal == config::StatsSignal::kUsr2) handle(SIGUSR2, on_dump_signal);
  if (options.trace_signal == config::StatsSignal::kUsr1) handle(SIGUSR1, on_trace_signal);
  if (options.trace_signal == config::StatsSignal::kUsr2) handle(SIGUSR2, on_trace_signal);
  if (options.stats == StatsForm::kOff && *options.metrics_file == '\0' && *options.trace == '\0') return;
  at_quick_exit(on_quick_exit);
  handle_deadly_signals(options);
}

void finish(Ending how) {
  const config::Options& options = config::options();
  const bool is_asked = options.stats != StatsForm::kOff && wants_full_report(options);
  if (is_ours()) note_end();
  // A filter may forbid the calls that are made here, and kill. What was written while the program ran ends
  // with it then, and nobody asked for a summary.
  const bool is_shut_in = knows_new_filter();
  if (!is_ours() || (is_shut_in && !is_asked)) return;
  const Undisturbed undisturbed;
  if (!sit_down(end_desk)) return wait_for(end_desk);
  if (!ending.exchange(true, std::memory_order_seq_cst)) {
    wait_for(dump_desk);
    const Reading reading = how == Ending::kOrderly ? Reading::kPatient : Reading::kNoLock;
    write(end_desk, {config::options().stats, reading});
    if (!is_shut_in) write_metrics(end_desk, {reading, nullptr, 0});
    if (!is_shut_in) finish_trace(end_desk);
  }
  stand_up(end_desk);
}

void dump() {
  if (!is_ours()) return;
  const Undisturbed undisturbed;
  if (!sit_down(dump_desk)) return;
  // The report at exit has begun: it contains more, so this one is dropped.
  if (!ending.load(std::memory_order_seq_cst)) {
    const StatsForm form = config::options().stats;
    const char* const file = config::options().stats_file;
    const bool full = form == StatsForm::kText || form == StatsForm::kJson;
    write(dump_desk, {full            ? form
                      : *file != '\0' ? form_for_file(file)
                                      : StatsForm::kText,
                      Reading::kNoLock});
    write_kept_trace(dump_desk);
  }
  stand_up(dump_desk);
}

void dump_trace() {
  if (!trace::is_kept() || !is_ours()) return;
  const Undisturbed undisturbed;
  if (!sit_down(dump_desk)) return;
  if (!ending.load(std::memory_order_seq_cst)) write_kept_trace(dump_desk);
  stand_up(dump_desk);
}

void write_metrics_now(const neighbours::Figures* figures, size_t count) {
  if (*config::options().metrics_file == '\0' || !is_ours()) return;
  const Undisturbed undisturbed;
  if (!sit_down(dump_desk)) return;
  if (!ending.load(std::memory_order_seq_cst)) write_metrics(dump_desk, {Reading::kLocked, figures, count});
  stand_up(dump_desk);
}

bool writes_text() {
  const config::Options& options = config::options();
  if (options.stats == StatsForm::kText) return true;
  return options.stats == StatsForm::kSummary && *options.stats_file != '\0' &&
         form_for_file(options.stats_file) == StatsForm::kText;
}

size_t print_json(char* text, size_t room) {
  Writer out(-1, text, room == 0 ? 0 : room - 1);
  write_json(out, facts(), Reading::kLocked);
  if (room != 0) text[out.size() < room ? out.size() : room - 1] = '\0';
  return out.size();
}

}  // namespace cupool::report
