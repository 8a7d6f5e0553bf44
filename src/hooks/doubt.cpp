// See doubt.hpp.
#include "hooks/doubt.hpp"

#include "base/log.hpp"
#include "cuda/live.hpp"
#include "hooks/serving.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

void doubt(const char* reason) {
  pools.order().distrust(reason);
  stop_remembering_contexts();
}

void note_unknown_entry_point(const char* name) {
  stats::count(stats::Event::unknown_entry_points);
  log::detail("the driver handed out %s, which cupool does not know", name);
  doubt("an entry point that cupool does not know was handed out");
}

void note_untracked_work() {
  stats::count(stats::Event::untracked_work);
  doubt("work went through a graphics interface");
}

}  // namespace cupool::hooks
