// See background_thread.hpp. `starting` guards the start of the thread; `working` is held while it may call
// the driver, and by a thread that ends a context (BackgroundThreadPause).
#include "hooks/process/background_thread.hpp"

#include <algorithm>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "base/own_thread.hpp"
#include "config/options.hpp"
#include "hooks/process/neighbours.hpp"
#include "hooks/state/serving.hpp"
#include "report/report.hpp"

namespace cupool::hooks {

namespace detail {
constinit std::atomic<bool> has_background_thread{false};
}

namespace {

constinit Lock starting{Rank::kBackgroundStart};
constinit Lock working{Rank::kBackgroundWork};
constinit std::atomic<bool> is_stopped{false};
// Threads in which a context ends. Of several devices they stand side by side for as long as the driver's
// call takes, so they are counted, and none holds the lock.
constinit std::atomic<int> pauses{0};

void forget_background_thread() {
  starting.reset_after_fork();
  working.reset_after_fork();
  is_stopped.store(false, std::memory_order_relaxed);
  pauses.store(0, std::memory_order_relaxed);
  detail::has_background_thread.store(false, std::memory_order_relaxed);
}
CUPOOL_AFTER_FORK(forget_background_thread_after_fork, &forget_background_thread);

bool is_wanted() {
  const config::Options& options = config::options();
  return options.decay_ms != 0 || options.neighbours || *options.metrics_file != '\0';
}

void* work(void*) {
  constexpr uint64_t kSecond = 1'000'000'000;
  constexpr uint64_t kBetweenMetrics = 10 * kSecond;
  const uint64_t decay_ms = config::options().decay_ms;
  const uint64_t period = decay_ms == 0 ? kSecond : std::max<uint64_t>(decay_ms / 4, 1) * 1'000'000;
  uint64_t looked = 0;
  uint64_t measured = 0;
  for (;;) {
    {
      Guard hold(working);
      if (is_stopped.load(std::memory_order_acquire)) return nullptr;
      // Read under the lock, which a pause takes after it is counted: one of the two sees the other.
      if (pauses.load(std::memory_order_acquire) == 0) {
        const uint64_t now = now_ns();
        meet_neighbours();
        answer_neighbours();
        if (decay_ms != 0 && now - looked >= period && is_serving()) {
          looked = now;
          memory.idle().decay_quiet();
        }
        show_to_neighbours();
        if (now - measured >= kBetweenMetrics) {
          measured = now;
          report::write_metrics_now();
        }
      }
    }
    // Publish figures at this rate even if memory goes back more rarely.
    wait_for_neighbours(std::min(period, kSecond));
  }
}

}  // namespace

void detail::start_background_thread() {
  Guard hold(starting);
  if (!has_background_thread.exchange(true) && is_wanted()) start_own_thread(work, nullptr);
}

void stop_background_thread() {
  is_stopped.store(true, std::memory_order_release);
  // A lock held for longer means that the driver does not answer: go on without it.
  if (!working.try_lock_for_a_moment()) return;
  leave_neighbours();
  working.unlock();
}

BackgroundThreadPause::BackgroundThreadPause() {
  pauses.fetch_add(1, std::memory_order_acq_rel);
  if (!working.try_lock_for_a_moment()) return;
  working.unlock();
}

BackgroundThreadPause::~BackgroundThreadPause() { pauses.fetch_sub(1, std::memory_order_release); }

}  // namespace cupool::hooks
