// See start_stacks.hpp. CUPOOL_CHECK and CUPOOL_LEAKS are of no use without stacks: they get some where the
// user has not said how deep they are to be.
#include "hooks/observe/start_stacks.hpp"

#include "base/log.hpp"
#include "config/options.hpp"
#include "trace/stacks.hpp"

// The linker's names for the beginning and the end of the library.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace cupool::hooks::observe {

void start_stacks() {
  if (trace::takes_stacks()) return;
  constexpr size_t kUsualDepth = 16;
  const config::Options& options = config::options();
  trace::StackSettings settings;
  settings.depth = options.stacks != 0 ? options.stacks : options.leaks || options.check ? kUsualDepth : 0;
  // A bad free may be that of any block.
  settings.least = options.check ? 0 : options.stacks_min.of(kUnlimited);
  settings.sample = options.check ? 0 : options.sample.of(kUnlimited);
  settings.own_begin = reinterpret_cast<uint64_t>(&__ehdr_start);
  settings.own_end = reinterpret_cast<uint64_t>(&_end);
  if (!trace::begin_stacks(settings) && options.stacks != 0)
    log::line(
        "without libunwind (libunwind8), which this system does not have, each call stack takes longer");
}

}  // namespace cupool::hooks::observe
