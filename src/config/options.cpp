// The one reading of the environment. Threads that race for it each parse their own copy and one of them is
// published: no lock, so a thread that comes here from inside the loader cannot wait for one that needs the
// loader.
#include "config/options.hpp"

#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/log.hpp"
#include "config/kinds.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"

namespace cupool::config {
namespace {

constinit std::atomic<const Options*> current{nullptr};
constinit std::atomic<bool> claimed{false};  // by the thread that may complain

void keep_quiet(const char*) {}
void complain(const char* sentence) { log::line("%s", sentence); }

// Before the rest is read, so that a part that starts early can say its details.
void set_log_level() {
  const char* const text = getenv("CUPOOL_LOG");
  Verbosity verbosity = Verbosity::kNormal;
  if (text != nullptr && parse(text, verbosity)) log::set_level(static_cast<log::Level>(verbosity));
}

void step_aside_where_told(Options& options) {
  const char* const program = program_invocation_short_name;
  const bool named_out = *options.except != '\0' && matches_any(options.except, program);
  const bool not_named = *options.only != '\0' && !matches_any(options.only, program);
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
  void* const room = malloc(sizeof(Options));
  if (room == nullptr) {
    // Without memory for the options nothing else of ours would work either.
    static constinit const Options kNone = {.backend = Backend::kOff};
    return kNone;
  }
  auto* const mine = new (room) Options(read_environment(environ, first ? complain : keep_quiet));
  step_aside_where_told(*mine);
  if (!current.compare_exchange_strong(ready, mine, std::memory_order_acq_rel)) {
    free(room);
    return *ready;
  }
  if (mine->help) print_help(*mine);
  return *mine;
}

const char* rank() {
  for (const char* const name :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK"}) {
    const char* const text = getenv(name);
    uint64_t number = 0;
    if (text != nullptr && parse(text, number)) return text;
  }
  return "";
}

const char* const* environment() { return environ; }

const char* program_path() {
  const char* const text = getenv("PATH");
  return text == nullptr ? "/bin:/usr/bin" : text;
}

const char* library_path() {
  const char* const text = getenv("LD_LIBRARY_PATH");
  return text == nullptr ? "" : text;
}

const char* preloaded() {
  const char* const text = getenv("LD_PRELOAD");
  return text == nullptr ? "" : text;
}

bool help_requested() {
  const char* const text = getenv("CUPOOL_HELP");
  bool help = false;
  return text != nullptr && parse(text, help) && help;
}

}  // namespace cupool::config
