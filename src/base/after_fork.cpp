// See after_fork.hpp. The linker makes the two names from that of the section.
#include "base/after_fork.hpp"

extern "C" {
[[gnu::visibility("hidden")]] extern const cupool::AfterFork __start_cupool_after_fork[];
[[gnu::visibility("hidden")]] extern const cupool::AfterFork __stop_cupool_after_fork[];
}

namespace cupool {

namespace {
// Keeps the section present when nothing else has registered.
CUPOOL_AFTER_FORK(nothing, nullptr);
}  // namespace

void forget_after_fork() {
  for (const AfterFork* one = __start_cupool_after_fork; one != __stop_cupool_after_fork; ++one) {
    if (*one != nullptr) (*one)();
  }
}

}  // namespace cupool
