// Written by the library's destructor, so after the program's own exit handlers. A hazard turns the exit code
// into 86, an added wait into 88, whatever the program returned. A forked child reports nothing: it has no
// device.
#include "sim/report.hpp"

#include <unistd.h>

#include <cstdio>

#include "base/say.hpp"
#include "sim/entry.hpp"
#include "sim/options.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

bool armed = false;

void write_json(const char* path) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    say(stderr, "cupool-sim: cannot write the report to {}\n", path);
    return;
  }
  State& s = state();
  const Counters& c = s.counters;
  say(file,
      "{{\"alloc_calls\":{}, \"free_calls\":{}, \"current_bytes\":{}, \"peak_bytes\":{}, \"launches\":{}, "
      "\"hazards\":{}, \"lives\":{}, \"operations\":{}, \"strays\":{}, \"streams_created\":{}, "
      "\"context_records\":{}, \"context_waits\":{}, \"peak_asked_bytes\":{}, \"added_waits\":{}, "
      "\"reserve_calls\":{}, \"create_calls\":{}, \"map_calls\":{}, \"access_calls\":{}, "
      "\"access_chunks\":{}, \"unmap_calls\":{}, \"unmap_chunks\":{}, \"release_calls\":{}, "
      "\"host_chunk_bytes\":{}, \"peak_host_chunk_bytes\":{}}}\n",
      c.alloc_calls, c.free_calls, s.used_bytes(), c.peak_bytes, c.launches, s.oracle.hazards(),
      s.oracle.lives(), c.operations, s.oracle.strays(), c.streams_created, c.context_records,
      c.context_waits, c.peak_asked_bytes, s.added_waits.count(), c.reserve_calls, c.create_calls,
      c.map_calls, c.access_calls, c.access_chunks, c.unmap_calls, c.unmap_chunks, c.release_calls,
      s.host_chunks != nullptr ? s.host_chunks->used() : 0, c.peak_host_chunk_bytes);
  std::fclose(file);
}

void tell(std::uint64_t count, const char* what, const std::vector<std::string>& stories) {
  if (count == 0) return;
  say(stderr, "cupool-sim: {} {}(s), seed {}\n", count, what, options().seed);
  for (const std::string& story : stories) say(stderr, "  {}: {}\n", what, trusted(story));
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
