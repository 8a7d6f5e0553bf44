// The handshake of a fast and a rare side, with the kernel's membarrier and without. Which of both a process
// uses is decided once, so each case runs in a process of its own; a filter of system calls makes the system
// one without membarrier.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

#include "base/asymmetric_fence.hpp"

using cupool::AsymmetricFence;

namespace {

bool take_membarrier_away() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof steps / sizeof *steps, steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// What `what` returned in a child, with an exit code's range.
template <class What>
int in_child(What what) {
  const pid_t child = fork();
  if (child == 0) _exit(what());
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// Each word has a line of its own: a store that waits for its line stays long in the buffer of its CPU, and
// loads pass it there.
struct alignas(128) Word {
  std::atomic<bool> is{false};
};

constexpr int kFailed = 2;

// The two sides as users of the class write them. enter(): whether it found the rare side absent.
struct ByFence {
  alignas(128) AsymmetricFence fence;
  Word inside;

  ByFence() { fence.prepare(); }
  bool enter() { return fence.try_enter(inside.is) || fence.enter_with_fence(inside.is); }
  bool close() { return fence.close(); }
  void peek() const { static_cast<void>(fence.is_closed()); }
};

struct ByOwnWords {
  Word closed;
  Word inside;

  ByOwnWords() { AsymmetricFence().prepare(); }
  bool enter() {
    inside.is.store(true, std::memory_order_relaxed);
    AsymmetricFence::order_this_thread();
    return !closed.is.load(std::memory_order_relaxed);
  }
  bool close() {
    closed.is.store(true, std::memory_order_relaxed);
    return AsymmetricFence::order_all_threads();
  }
  void peek() const { static_cast<void>(closed.is.load(std::memory_order_relaxed)); }
};

// One round, once: the fast side enters in one thread while the rare side closes in another.
template <class Sides>
struct Round {
  Sides sides;
  bool fast_missed = false;
  bool rare_missed = false;
};

void spin(int turns) {
  static std::atomic<int> word{0};
  for (int i = 0; i < turns; ++i) static_cast<void>(word.load(std::memory_order_relaxed));
}

// Two threads that share a CPU see each other's stores in order.
void keep_to(int place) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && place-- == 0) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof one, &one);
}

// Waits, and lets the other thread run if it shares our CPU.
template <class Condition>
void wait_until(Condition condition) {
  constexpr int kSpins = 20'000;
  for (int spins = 0; !condition(); ++spins) {
    if (spins >= kSpins) sched_yield();
  }
}

// How many rounds there are in which neither side saw the other, up to 1; kFailed: closing was not certain.
// The sides begin a round together, each after a delay that changes from round to round; without the order,
// hundreds of rounds in 20,000 fail on an aarch64 of two cores. As many rounds as fit into a second: on a
// busy machine the threads may seldom run at the same time.
template <class Sides>
int meet() {
  constexpr int kRounds = 20'000;
  constexpr int kSeconds = 1;
  static std::atomic<int> begun{0};
  static std::atomic<int> entered{0};
  const auto rounds = std::make_unique<Round<Sides>[]>(kRounds + 1);
  std::thread fast([&] {
    keep_to(1);
    for (int i = 1; i <= kRounds; ++i) {
      rounds[i].sides.peek();
      wait_until([&] { return begun.load(std::memory_order_acquire) >= i; });
      if (begun.load(std::memory_order_relaxed) > kRounds) return;
      spin(i % 13);
      rounds[i].fast_missed = rounds[i].sides.enter();
      entered.store(i, std::memory_order_release);
    }
  });
  keep_to(0);
  int result = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
  for (int i = 1; i <= kRounds && std::chrono::steady_clock::now() < end; ++i) {
    Round<Sides>& round = rounds[i];
    round.sides.inside.is.store(false, std::memory_order_relaxed);  // the line is ours
    begun.store(i, std::memory_order_release);
    spin(i % 401);
    if (!round.sides.close()) result = kFailed;
    round.rare_missed = !round.sides.inside.is.load(std::memory_order_relaxed);
    wait_until([&] { return entered.load(std::memory_order_acquire) >= i; });
    if (round.fast_missed && round.rare_missed) result = 1;
  }
  begun.store(kRounds + 1, std::memory_order_release);
  fast.join();
  return result;
}

// How many rounds there are in which the rare side found a thread gone and missed what it had done inside,
// up to 1. The thread works on lines that the rare side has.
int leave() {
  constexpr int kRounds = 20'000;
  constexpr int kSeconds = 1;
  struct Visit {
    Word inside;
    Word work;
  };
  static std::atomic<int> begun{0};
  static AsymmetricFence fence;
  fence.prepare();
  const auto visits = std::make_unique<Visit[]>(kRounds + 1);
  std::thread fast([&] {
    keep_to(1);
    for (int i = 1; i <= kRounds; ++i) {
      wait_until([&] { return begun.load(std::memory_order_acquire) >= i; });
      if (begun.load(std::memory_order_relaxed) > kRounds) return;
      visits[i].work.is.store(true, std::memory_order_relaxed);
      fence.exit_plainly(visits[i].inside.is);
    }
  });
  keep_to(0);
  int result = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
  for (int i = 1; i <= kRounds && std::chrono::steady_clock::now() < end; ++i) {
    Visit& visit = visits[i];
    visit.inside.is.store(true, std::memory_order_relaxed);
    visit.work.is.store(false, std::memory_order_relaxed);
    begun.store(i, std::memory_order_release);
    wait_until([&] { return !visit.inside.is.load(std::memory_order_acquire); });
    AsymmetricFence::order_exits();
    AsymmetricFence::note_exit_seen(visit.inside.is);
    if (!visit.work.is.load(std::memory_order_relaxed)) result = 1;
  }
  begun.store(kRounds + 1, std::memory_order_release);
  fast.join();
  return result;
}

template <class Sides>
int meet_without_membarrier() {
  return take_membarrier_away() ? meet<Sides>() : kFailed;
}

}  // namespace

TEMPLATE_TEST_CASE("by a membarrier the rare side has closed before it looks who is inside", "", ByFence,
                   ByOwnWords) {
  CHECK(in_child([] { return meet<TestType>(); }) == 0);
}

TEMPLATE_TEST_CASE("on a system without membarrier both sides issue fences", "", ByFence, ByOwnWords) {
  CHECK(in_child([] { return meet_without_membarrier<TestType>(); }) == 0);
}

TEST_CASE("what a thread did inside is seen by the rare side that finds it gone") {
  CHECK(in_child([] { return leave(); }) == 0);
  CHECK(in_child([] { return take_membarrier_away() ? leave() : kFailed; }) == 0);
}

TEST_CASE("a thread enters without a fence as soon as the system is known to have a membarrier") {
  CHECK(in_child([] {
          AsymmetricFence fence;
          std::atomic<bool> inside{false};
          const bool before = fence.try_enter(inside);
          fence.prepare();
          return !before && fence.try_enter(inside) ? 0 : 1;
        }) == 0);
}

TEST_CASE("a filter that takes the membarrier away later is noticed, and the fast side issues fences") {
  CHECK(in_child([] {
          AsymmetricFence fence;
          std::atomic<bool> inside{false};
          fence.prepare();
          if (!fence.try_enter(inside) || !take_membarrier_away()) return kFailed;
          AsymmetricFence::exit(inside);
          errno = 0;
          const bool is_certain = fence.close();
          if (is_certain || errno != 0 || fence.enter_with_fence(inside)) return 1;
          fence.open();
          return !fence.try_enter(inside) && fence.enter_with_fence(inside) ? 0 : 1;
        }) == 0);
}
