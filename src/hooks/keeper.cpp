// See keeper.hpp. `starting` guards the start of the thread; `working` is held while it may call the driver.
#include "hooks/keeper.hpp"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>

#include "base/after_fork.hpp"
#include "base/lock.hpp"
#include "config/options.hpp"
#include "hooks/serving.hpp"

namespace cupool::hooks {

namespace detail {
constinit std::atomic<bool> has_keeper{false};
}

namespace {

// The driver's calls need some, a program's default may be as little as 16 KiB.
constexpr size_t kStackBytes = 512 << 10;

constinit Lock starting;
constinit Lock working;
constinit std::atomic<bool> is_stopped{false};

void forget_keeper() {
  starting.reset_after_fork();
  working.reset_after_fork();
  is_stopped.store(false, std::memory_order_relaxed);
  detail::has_keeper.store(false, std::memory_order_relaxed);
}
CUPOOL_AFTER_FORK(forget_keeper_after_fork, &forget_keeper);

void* keep(void*) {
  const uint64_t period_ms = std::max<uint64_t>(config::options().decay_ms / 4, 1);
  const timespec period{static_cast<time_t>(period_ms / 1000),
                        static_cast<long>(period_ms % 1000 * 1'000'000)};
  for (;;) {
    nanosleep(&period, nullptr);
    Guard hold(working);
    if (is_stopped.load(std::memory_order_acquire)) return nullptr;
    if (is_serving()) memory.decay_quiet();
  }
}

// A signal is for the program's own threads.
void start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, keep, nullptr) == 0) pthread_setname_np(thread, "cupool");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

void detail::start_keeper() {
  Guard hold(starting);
  if (!has_keeper.exchange(true) && config::options().decay_ms != 0) start();
}

void stop_keeper() {
  is_stopped.store(true, std::memory_order_release);
  // If it is held for longer, the driver does not answer, and there is nothing to be done about it here.
  if (working.try_lock_for_a_moment()) working.unlock();
}

}  // namespace cupool::hooks
