// Written by the library's destructor, so after the program's own exit handlers. A hazard turns the exit code
// into 86, an added wait into 88, whatever the program returned. A forked child reports nothing: it has no
// device.
#include "sim/report.hpp"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "sim/entry.hpp"
#include "sim/options.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

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
               ", \"context_waits\":%" PRIu64 ", \"peak_asked_bytes\":%" PRIu64 ", \"added_waits\":%" PRIu64
               "}\n",
               c.alloc_calls, c.free_calls, s.used_bytes(), c.peak_bytes, c.launches, s.oracle.hazards(),
               s.oracle.lives(), c.operations, s.oracle.strays(), c.streams_created, c.context_records,
               c.context_waits, c.peak_asked_bytes, s.added_waits.count());
  std::fclose(file);
}

void tell(std::uint64_t count, const char* what, const std::vector<std::string>& stories) {
  if (count == 0) return;
  std::fprintf(stderr, "cupool-sim: %" PRIu64 " %s(s), seed %" PRIu64 "\n", count, what, options().seed);
  for (const std::string& story : stories) std::fprintf(stderr, "  %s: %s\n", what, story.c_str());
}

// The exit code of what the oracles found; 0: nothing.
int report_findings() {
  if (!options().report.empty()) write_json(options().report.c_str());
  const State& s = state();
  tell(s.oracle.hazards(), "hazard", s.oracle.stories());
  tell(s.added_waits.count(), "added wait", s.added_waits.stories());
  if (s.oracle.hazards() > 0) return kHazardExit;
  return s.added_waits.count() > 0 ? kAddedWaitExit : 0;
}

__attribute__((destructor)) void at_exit() {
  if (!armed || driver_life.load() != Life::kRunning || StateMutex::is_here()) return;
  int code = 0;
  {
    const Inside lock;
    code = report_findings();
  }
  if (code == 0) return;
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

void start_report() { armed = true; }

void end_with_report(int code) {
  report_findings();
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace cupool::sim
