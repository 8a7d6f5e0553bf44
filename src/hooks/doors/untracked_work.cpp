// See untracked_work.hpp.
#include "hooks/doors/untracked_work.hpp"

#include "base/log.hpp"
#include "cuda/live.hpp"
#include "hooks/state/serving.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

void note_possible_bypass(const char* reason) {
  memory.order().expect_untracked_work(reason);
  stop_remembering_contexts();
  cuda::live.expect_untracked_work();
}

void note_unknown_entry_point(const char* name) {
  stats::count(stats::Event::unknown_entry_points);
  static constinit log::Once once;
  if (once.first())
    log::line("the program uses {} of the driver, which cupool does not know: memory is reused with care",
              name);
  note_possible_bypass("an entry point that cupool does not know was handed out");
}

void note_unknown_table() {
  static constinit log::Once once;
  if (once.first())
    log::line(
        "the program uses a private table of the driver that cupool does not know: memory is reused "
        "with care");
  note_possible_bypass("a private table that cupool does not know was handed out");
}

void note_untracked_work() {
  stats::count(stats::Event::untracked_work);
  note_possible_bypass("work went through a graphics interface");
}

}  // namespace cupool::hooks
