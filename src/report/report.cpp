// See report.hpp. One buffer for all reports, taken by a flag: two signals at once, or a signal in the middle
// of an exit, must not mix their reports. Who finds it taken goes without.
#include "report/report.hpp"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "config/options.hpp"
#include "report/file.hpp"
#include "report/forms.hpp"

namespace cupool::report {
namespace {

using config::StatsForm;
using stats::Reading;

constinit char buffer[32 * 1024];
constinit std::atomic<bool> buffer_taken{false};
constinit std::atomic<bool> finished{false};
constinit std::atomic<int> owner{
    0};  // the process that used CUDA; a vfork child shares our memory but is not it

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

void write_to_stderr(const Order& order) {
  Writer out(STDERR_FILENO, buffer, sizeof buffer);
  write_form(out, &order);
  out.flush();
}

void write_to_named_file(const Order& order) {
  char path[PATH_MAX];
  expand(config::options().stats_file, facts(), path, sizeof path);
  const int error = write_file(path, buffer, sizeof buffer, write_form, &order);
  if (error == 0) return;
  log::line("cannot write the report to %s: %s; it follows here", path,
            error == ELOOP ? "it is a symbolic link" : strerrordesc_np(error));
  write_to_stderr(order);
}

// What a file gets when no form was asked for.
StatsForm form_for_file(const char* name) {
  const size_t size = strlen(name);
  return size >= 5 && strcmp(name + size - 5, ".json") == 0 ? StatsForm::kJson : StatsForm::kText;
}

void write(StatsForm form, Reading reading) {
  if (form == StatsForm::kOff || buffer_taken.exchange(true, std::memory_order_acquire)) return;
  const char* const file = config::options().stats_file;
  if (*file == '\0') {
    write_to_stderr({form, reading});
  } else if (form == StatsForm::kSummary) {
    write_to_stderr({form, reading});
    write_to_named_file({form_for_file(file), reading});
  } else {
    write_to_named_file({form, reading});
  }
  buffer_taken.store(false, std::memory_order_release);
}

bool is_ours() { return owner.load(std::memory_order_relaxed) == getpid(); }

void on_deadly_signal(int signal_number) {
  const int saved_errno = errno;
  finish(Ending::kAbrupt);
  errno = saved_errno;
  // The action is the default again (SA_RESETHAND), and the signal is blocked until we return.
  raise(signal_number);
}

void on_dump_signal(int) {
  const int saved_errno = errno;
  dump();
  errno = saved_errno;
}

void on_quick_exit() { finish(Ending::kAbrupt); }

void handle(int signal_number, void (*handler)(int), int flags) {
  struct sigaction now;
  if (sigaction(signal_number, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours = {};
  ours.sa_handler = handler;
  ours.sa_flags = flags | SA_RESTART | SA_ONSTACK;
  sigaction(signal_number, &ours, nullptr);
}

}  // namespace

void begin(const Probe& probe) {
  set_probe(probe);
  owner.store(getpid(), std::memory_order_relaxed);
  const config::Options& options = config::options();
  if (options.stats_exact) stats::set_peak_bound(0);
  if (options.stats_signal == config::StatsSignal::kUsr1) handle(SIGUSR1, on_dump_signal, 0);
  if (options.stats_signal == config::StatsSignal::kUsr2) handle(SIGUSR2, on_dump_signal, 0);
  if (options.stats == StatsForm::kOff) return;
  at_quick_exit(on_quick_exit);
  // A summary alone is not worth a signal handler that the program did not ask for.
  if (options.stats == StatsForm::kSummary && *options.stats_file == '\0') return;
  handle(SIGTERM, on_deadly_signal, SA_RESETHAND);
  handle(SIGABRT, on_deadly_signal, SA_RESETHAND);
}

void finish(Ending ending) {
  if (!is_ours() || finished.exchange(true, std::memory_order_relaxed)) return;
  write(config::options().stats, ending == Ending::kOrderly ? Reading::kLocked : Reading::kNoLock);
}

void dump() {
  if (!is_ours()) return;
  const StatsForm form = config::options().stats;
  const char* const file = config::options().stats_file;
  const bool full = form == StatsForm::kText || form == StatsForm::kJson;
  write(full ? form : *file != '\0' ? form_for_file(file) : StatsForm::kText, Reading::kNoLock);
}

size_t print_json(char* text, size_t room) {
  Writer out(-1, text, room == 0 ? 0 : room - 1);
  write_json(out, facts(), Reading::kLocked);
  if (room != 0) text[out.size() < room ? out.size() : room - 1] = '\0';
  return out.size();
}

}  // namespace cupool::report
