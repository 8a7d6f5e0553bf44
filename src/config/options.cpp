// The single read of the environment. Threads that race for it each parse their own copy, and one copy is
// published: no lock, so a thread that comes here from inside the loader cannot wait for one that needs the
// loader.
#include "config/options.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/log.hpp"
#include "config/kinds.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"
#include "config/process.hpp"

namespace cupool::config {
namespace {

constinit std::atomic<const Options*> current{nullptr};
constinit std::atomic<bool> claimed{false};  // by the thread that may complain

constexpr void make_empty(Text& field) { field = ""; }
template <typename T>
constexpr void make_empty(T&) {}

constexpr Options switched_off() {
  Options none;
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc) make_empty(none.field);
#include "config/options.def"
  none.backend = Backend::kOff;
  none.stats = StatsForm::kOff;
  return none;
}
constinit const Options kNone = switched_off();

void keep_quiet(const char*) {}
void complain(const char* sentence) { log::line("{}", sentence); }

// Before the rest is read, so that code that runs early can log its details.
void set_log_level() {
  const char* const text = variable("CUPOOL_LOG");
  Verbosity verbosity = Verbosity::kNormal;
  if (text != nullptr && parse(text, verbosity)) log::set_level(static_cast<log::Level>(verbosity));
}

void step_aside_where_told(Options& options) {
  const bool named_out = *options.except != '\0' && matches_any(options.except, program());
  const bool not_named = *options.only != '\0' && !matches_any(options.only, program());
  options.stepped_aside = named_out || not_named;
  if (options.stepped_aside) options.backend = Backend::kOff;
}

}  // namespace

const Options& options() {
  const Options* ready = current.load(std::memory_order_acquire);
  if (ready != nullptr) [[likely]]
    return *ready;
  const bool first = !claimed.exchange(true, std::memory_order_relaxed);
  if (first) set_log_level();
  // The host may be out of memory: the thread that claimed the read uses static storage. A thread that races
  // with it and gets no memory runs without cupool.
  alignas(Options) static constinit char set_aside[sizeof(Options)] = {};
  void* const room = first ? set_aside : malloc(sizeof(Options));
  if (room == nullptr) return kNone;
  auto* const mine = new (room) Options(read_environment(environment(), first ? complain : keep_quiet));
  step_aside_where_told(*mine);
  if (!current.compare_exchange_strong(ready, mine, std::memory_order_acq_rel)) {
    if (!first) free(room);
    return *ready;
  }
  if (mine->help) print_help(*mine);
  return *mine;
}

bool help_requested() {
  const char* const text = variable("CUPOOL_HELP");
  bool help = false;
  return text != nullptr && parse(text, help) && help;
}

}  // namespace cupool::config
