// The small mutex: one holder at a time, a try that does not wait, and a child that can start over.
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "other_thread.hpp"

using cupool::Guard;
using cupool::Lock;
using cupool::now_ns;
using cupool::Rank;

TEST_CASE("only one thread at a time is inside the lock") {
  Lock lock{Rank::kRegistry};
  constexpr int kThreads = 4, kRounds = 20000;
  long plain = 0;  // not atomic: a second holder would lose counts
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const Guard guard(lock);
        plain = plain + 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(plain == long{kThreads} * kRounds);
}

TEST_CASE("threads that sleep for a lock get it, one after the other") {
  Lock lock{Rank::kRegistry};
  // More than a few, so that some sleep at once.
  constexpr size_t kThreads = 12;
  size_t inside = 0;
  std::vector<std::unique_ptr<cupool::test::OtherThread>> threads;
  lock.lock();
  for (size_t i = 0; i < kThreads; ++i) {
    threads.push_back(std::make_unique<cupool::test::OtherThread>([&] {
      const Guard guard(lock);
      ++inside;
    }));
  }
  // Long enough for the first ones, too.
  for (int i = 0; i < 40; ++i) {
    for (auto& thread : threads) CHECK(thread->stands());
  }
  lock.unlock();
  for (auto& thread : threads) thread->join();
  CHECK(inside == kThreads);
}

TEST_CASE("a try on a held lock fails and does not wait") {
  Lock lock{Rank::kRegistry};
  // Branches rather than checks of the result: clang's analysis follows these alone.
  if (!lock.try_lock()) {
    FAIL_CHECK("a free lock was not taken");
    return;
  }
  bool taken = true;
  std::thread([&] { taken = lock.try_lock(); }).join();
  CHECK_FALSE(taken);
  lock.unlock();
  if (!lock.try_lock()) {
    FAIL_CHECK("a lock that was given back was not taken");
    return;
  }
  lock.unlock();
}

TEST_CASE("who tries for a moment leaves the holder twenty milliseconds, however few wait") {
  Lock lock{Rank::kRegistry};
  lock.lock();
  const uint64_t begin = now_ns();
  std::thread([&] { CHECK_FALSE(lock.try_lock_for_a_moment()); }).join();
  CHECK(now_ns() - begin >= 19'000'000);
  lock.unlock();
}

#if !defined(CUPOOL_CHECK_LOCKS)
TEST_CASE("a lock takes eight bytes, and its rank none of it") {
  STATIC_REQUIRE(sizeof(Lock) == 8);
  static constinit Lock global{Rank::kRegistry};
  if (!global.try_lock()) {
    FAIL_CHECK("a new lock was not taken");
    return;
  }
  global.unlock();
}
#endif

TEST_CASE("a fork child can reset a lock held by a thread it does not have") {
  Lock lock{Rank::kRegistry};
  lock.lock();
  lock.reset_after_fork();
  CHECK(lock.try_lock());
  lock.unlock();
}
