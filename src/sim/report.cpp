// Written by the library's destructor, so after the program's own exit handlers. A hazard turns the exit code
// into 86, whatever the program returned. A forked child reports nothing: it has no device.
#include "sim/report.hpp"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "sim/entry.hpp"
#include "sim/options.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

constexpr int kHazardExit = 86;
bool armed = false;

void write_json(const char* path) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    std::fprintf(stderr, "cupool-sim: cannot write the report to %s\n", path);
    return;
  }
  State& s = state();
  const Counters& c = s.counters;
  std::fprintf(file,
               "{\"alloc_calls\":%" PRIu64 ", \"free_calls\":%" PRIu64 ", \"current_bytes\":%" PRIu64
               ", \"peak_bytes\":%" PRIu64 ", \"launches\":%" PRIu64 ", \"hazards\":%" PRIu64
               ", \"lives\":%" PRIu64 ", \"operations\":%" PRIu64 ", \"strays\":%" PRIu64
               ", \"streams_created\":%" PRIu64 ", \"context_records\":%" PRIu64
               ", \"context_waits\":%" PRIu64 ", \"peak_asked_bytes\":%" PRIu64 "}\n",
               c.alloc_calls, c.free_calls, s.used_bytes(), c.peak_bytes, c.launches, s.oracle.hazards(),
               s.oracle.lives(), c.operations, s.oracle.strays(), c.streams_created, c.context_records,
               c.context_waits, c.peak_asked_bytes);
  std::fclose(file);
}

void tell_hazards() {
  const Oracle& oracle = state().oracle;
  std::fprintf(stderr, "cupool-sim: %" PRIu64 " hazard(s), seed %" PRIu64 "\n", oracle.hazards(),
               options().seed);
  for (const std::string& story : oracle.stories()) std::fprintf(stderr, "  hazard: %s\n", story.c_str());
}

__attribute__((destructor)) void at_exit() {
  if (!armed || driver_life.load() != Life::kRunning) return;
  std::uint64_t hazards = 0;
  {
    const Inside lock;
    if (!options().report.empty()) write_json(options().report.c_str());
    hazards = state().oracle.hazards();
    if (hazards > 0) tell_hazards();
  }
  if (hazards == 0) return;
  std::fflush(nullptr);
  _exit(kHazardExit);
}

}  // namespace

void start_report() { armed = true; }

}  // namespace cupool::sim
