// See context_ending.hpp.
#include "context/context_ending.hpp"

#include "base/after_fork.hpp"

namespace cupool::context {

namespace {
CUPOOL_AFTER_FORK(endings_after_fork, ContextEnding::forget_after_fork);
}  // namespace

}  // namespace cupool::context
