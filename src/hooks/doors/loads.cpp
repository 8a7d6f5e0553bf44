// See loads.hpp.
#include "hooks/doors/loads.hpp"

#include <link.h>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "hooks/doors/direct_access.hpp"
#include "hooks/doors/linked_names.hpp"

namespace cupool::hooks {

namespace {

// A thread that loads a library and then never allocates must not keep the others off the fast path for ever.
constexpr uint64_t kLongestLoadNs = 1'000'000'000;

constinit Lock lock{Rank::kLoads};
constinit unsigned loading CUPOOL_GUARDED_BY(lock) = 0;  // threads that have not checked since their load
constinit uint64_t round CUPOOL_GUARDED_BY(lock) = 1;    // advances when those threads are given up
constinit uint64_t last_load_ns CUPOOL_GUARDED_BY(lock) = 0;
constinit std::atomic<unsigned long long> looked_at{0};  // loads of the process already checked
constinit thread_local uint64_t my_round = 0;            // 0: this thread has checked

int count_loads(dl_phdr_info* info, size_t, void* count) {
  *static_cast<unsigned long long*>(count) = info->dlpi_adds;
  return 1;
}

}  // namespace

void note_load() {
  Guard hold(lock);
  last_load_ns = now_ns();
  if (my_round != round) ++loading;
  my_round = round;
  set_slow(SlowReason::kLoadsPending, true);
}

void look_at_loads() {
  unsigned long long loads = 0;
  dl_iterate_phdr(count_loads, &loads);
  if (looked_at.exchange(loads, std::memory_order_acq_rel) != loads) {
    look_for_direct_access();
    look_for_unknown_names();
  }
  Guard hold(lock);
  if (my_round == round && loading != 0) --loading;
  my_round = 0;
  if (loading != 0 && now_ns() - last_load_ns > kLongestLoadNs) {
    loading = 0;
    ++round;
  }
  set_slow(SlowReason::kLoadsPending, loading != 0);
}

namespace {
void forget() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock.reset_after_fork();
  loading = 0;
  my_round = 0;
  set_slow(SlowReason::kLoadsPending, false);
}
CUPOOL_AFTER_FORK(after_fork, forget);
}  // namespace

}  // namespace cupool::hooks
