// See fork_gate.hpp.
#include "base/fork_gate.hpp"

#include "base/after_fork.hpp"
#include "base/lock.hpp"

namespace cupool {
namespace {

// Half a second: on a busy machine the holder may get no processor for a while. What is longer has a reason.
constexpr int kMoments = 25;

constinit Lock gate{Rank::kForkGate};
constinit thread_local bool is_closed_here = false;

CUPOOL_AFTER_FORK(fork_gate_after_fork, [] {
  gate.reset_after_fork();
  is_closed_here = false;
});

}  // namespace

NoFork::NoFork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS : is_held_(gate.try_lock_for_a_moment(kMoments)) {}
NoFork::~NoFork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  if (is_held_) gate.unlock();
}

// A lock held for longer means that the driver does not answer: the program forks nevertheless.
void close_fork_gate() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  is_closed_here = gate.try_lock_for_a_moment(kMoments);
}

void open_fork_gate() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  if (is_closed_here) gate.unlock();
  is_closed_here = false;
}

}  // namespace cupool
