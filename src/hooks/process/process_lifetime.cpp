// See process_lifetime.hpp. The library's destructor marks the end of the process. It only reads and prints:
// the pool is never torn down, because other libraries may still call us afterwards.
#include "hooks/process/process_lifetime.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "base/after_fork.hpp"
#include "base/fork_gate.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "base/output.hpp"
#include "base/own_call.hpp"
#include "base/reentry.hpp"
#include "config/options.hpp"
#include "config/print.hpp"
#include "config/process.hpp"
#include "config/watchers.hpp"
#include "cuda/real.hpp"
#include "hooks/doors/direct_access.hpp"
#include "hooks/doors/linked_names.hpp"
#include "hooks/observe/charges.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/process/file_thread.hpp"
#include "hooks/process/neighbours.hpp"
#include "hooks/process/nvtx.hpp"
#include "hooks/process/trace_switch.hpp"
#include "hooks/sharing/lending.hpp"
#include "hooks/state/current.hpp"
#include "hooks/state/serving.hpp"
#include "report/holders.hpp"
#include "report/ledger.hpp"
#include "report/report.hpp"
#include "stats/counters.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {
namespace {

enum class Life { kUnused, kServing, kForked };
constinit std::atomic<Life> life{Life::kUnused};
constinit std::atomic<pid_t> process{0};  // that uses CUDA
constinit Lock start_lock{Rank::kStart};  // for a fork child with several first contexts at once

void forget_everything() {
  // First: until then the counts are in the parent's file.
  report::leave_ledger_after_fork();
  start_lock.reset_after_fork();
  life.store(Life::kForked, std::memory_order_relaxed);
  set_slow(SlowReason::kNotServing, true);
  forget_after_fork();
}

report::Mode current_mode() {
  const config::Options& options = config::options();
  if (options.backend == config::Backend::kOff) return {"off", ""};
  if (memory.serves_native()) return {"native", ""};
  const char* const reason = memory.order().reason();
  switch (memory.order().reuse()) {
    case order::Reuse::kLean:
      return {"lanes", ""};
    case order::Reuse::kOrder:
      return {"fences", reason};
    case order::Reuse::kCompleted:
      return {"exact", reason};
  }
  return {};
}

void fill_figures(int device, stats::Reading reading, stats::DeviceSums* sums) {
  const bool may_wait = reading != stats::Reading::kNoLock;
  sums->largest_free_range = memory.idle().largest_free(device, may_wait);
  native::NativePool* const native = memory.native();
  if (native == nullptr || !may_wait) return;
  // An exit from a signal handler may have interrupted this very thread inside the driver.
  if (reading == stats::Reading::kPatient && (Reentry::inside() || !native->can_be_asked())) return;
  const driver::NativeUsage usage = native->usage(device);
  sums->native_used_bytes = usage.used;
  sums->native_peak_used_bytes = usage.peak_used;
  sums->native_reserved_bytes = usage.reserved;
  sums->native_peak_reserved_bytes = usage.peak_reserved;
}

// A tool that checks accesses against allocation bounds must see the program's own allocations.
void step_back_if_watched() {
  const char* const tool = config::watching_tool();
  if (tool == nullptr) return;
  log::line("{} is watching: every block is a driver allocation of its own", tool);
  memory.use_dedicated_allocations();
}

// From now on this process uses CUDA, and the pool serves it.
void start() {
  const CancelShield shield;
  const config::Options& options = config::options();
  find_exit();
  note_filters();
  report::begin({current_mode, fill_figures, switch_trace_soon});
  if (options.streams == config::Streams::kFences)
    memory.order().expect_untracked_work("CUPOOL_STREAMS=fences");
  if (options.streams == config::Streams::kExact) memory.order().use_completed_only("CUPOOL_STREAMS=exact");
  observer.start();
  if (trace::is_on()) trace::set_waker(wake_file_thread_to_gather);
  start_mapping(options.segments == config::Segments::kMapped, options.spill);
  look_for_direct_access();
  look_for_unknown_names();
  if (options.neighbours) memory.shortage().set_neighbours(&ask_neighbours);
  if (!options.split) memory.use_dedicated_allocations();
  const bool native_first = options.backend == config::Backend::kNative;
  if (native_first || options.fallback == config::Fallback::kNative) start_native(native_first);
  if (options.split && options.backend != config::Backend::kOff) step_back_if_watched();
  set_slow(SlowReason::kNotServing, options.backend == config::Backend::kOff);
  report::note_mode();
  process.store(getpid(), std::memory_order_relaxed);
  life.store(Life::kServing, std::memory_order_release);
  const report::Mode mode = current_mode();
  log::detail("this process uses CUDA: mode {}{}{}", mode.name,
              mode.reason == nullptr || *mode.reason == '\0' ? "" : ", ",
              mode.reason == nullptr ? "" : mode.reason);
}

// The only code that runs in a process without CUDA. Later the program may have closed descriptor 2 and
// opened a file of its own there, or written a title over its name.
[[gnu::constructor]] void library_is_loaded() {
  log::remember_stderr();
  config::remember_program();
  offer_nvtx();
}

[[gnu::destructor]] void process_ends() {
  if (life.load(std::memory_order_relaxed) == Life::kUnused) {
    if (config::help_requested()) config::options();
    return;
  }
  if (config::options().leaks && is_own_process()) {
    const OwnCall guard;
    report::write_leaks();
  }
  report::finish(report::Ending::kOrderly);
}

}  // namespace

void context_made() {
  if (life.load(std::memory_order_acquire) != Life::kForked) return;
  // Other threads wait until start() is done: their contexts must be known to order/ as well.
  Guard hold(start_lock);
  if (life.load(std::memory_order_relaxed) == Life::kForked) start();
}

void before_the_driver_ends() {
  // Once it shuts down, the driver refuses allocations and queries of its pool.
  stop_remembering_contexts();
  observe::look_at_charges();
  stop_background_thread();
  stop_lending();
  native::NativePool* const native = memory.native();
  for (int device = 0; native != nullptr && device < stats::kMostDevices; ++device) native->usage(device);
}

bool is_own_process() { return process.load(std::memory_order_relaxed) == getpid(); }

bool is_forked() { return life.load(std::memory_order_relaxed) == Life::kForked; }

bool is_alive() { return life.load(std::memory_order_relaxed) == Life::kServing; }

}  // namespace cupool::hooks

void cupool::cuda::on_first_use() {
  hooks::start();
  pthread_atfork(close_fork_gate, open_fork_gate, hooks::forget_everything);
}
