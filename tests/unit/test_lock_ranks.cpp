// The order of locks, as builds with CUPOOL_CHECK_LOCKS check it: this program is always built so, by itself.
// What has to end the process does so in a child.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "base/lock.hpp"

using cupool::Lock;
using cupool::Rank;

namespace {

// What the code says before it ends its process; nothing: it did not.
template <typename Code>
std::string last_words(Code&& code) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGABRT, SIG_DFL);  // Catch2 has a handler
    dup2(ends[1], STDERR_FILENO);
    code();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char part[256];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) != said.empty());
  return said;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The analysis of clang does not see through a fork, nor that the take is meant to be wrong.
void take(Lock& lock) CUPOOL_NO_THREAD_SAFETY_ANALYSIS { lock.lock(); }
bool try_it(Lock& lock) CUPOOL_NO_THREAD_SAFETY_ANALYSIS { return lock.try_lock(); }
void give_back(Lock& lock) CUPOOL_NO_THREAD_SAFETY_ANALYSIS { lock.unlock(); }

}  // namespace

TEST_CASE("a lock that is taken under one of a higher rank ends the process, which names both") {
  Lock outer{Rank::kPools};
  Lock inner{Rank::kRanges};
  const std::string said = last_words([&] {
    take(inner);
    take(outer);
  });
  CHECK(has(said, "lock Pools is taken while the thread holds the lock Ranges"));
}

TEST_CASE("locks are taken by rising rank and given back in any order") {
  Lock outer{Rank::kPools};
  Lock middle{Rank::kRanges};
  Lock inner{Rank::kPageMap};
  CHECK(last_words([&] {
          take(outer);
          take(inner);
          give_back(outer);
          give_back(inner);
          take(outer);
          take(middle);
          take(inner);
          give_back(middle);
          give_back(inner);
          give_back(outer);
        }) == "");
  CHECK(has(last_words([&] {
              take(outer);
              take(inner);
              give_back(outer);
              take(middle);
            }),
            "lock Ranges is taken while the thread holds the lock PageMap"));
}

TEST_CASE("two locks of one rank are not held together, nor one twice") {
  Lock one{Rank::kTimeline};
  Lock other{Rank::kTimeline};
  CHECK(has(last_words([&] {
              take(one);
              take(other);
            }),
            "lock Timeline is taken while the thread holds the lock Timeline"));
  CHECK(has(last_words([&] {
              take(one);
              take(one);
            }),
            "takes the lock Timeline, which it holds"));
}

TEST_CASE("a try out of rank ends the process, but for locks that the end of the process tries") {
  Lock inner{Rank::kContexts};
  Lock ordered{Rank::kTimeline};
  Lock anytime{Rank::kRanges};
  CHECK(has(last_words([&] {
              take(inner);
              try_it(ordered);
            }),
            "lock Timeline is taken while the thread holds the lock Contexts"));
  CHECK(last_words([&] {
          take(inner);
          try_it(anytime);
        }) == "");
  // It counts as held all the same.
  Lock pools{Rank::kPools};
  CHECK(has(last_words([&] {
              try_it(anytime);
              take(pools);
            }),
            "lock Pools is taken while the thread holds the lock Ranges"));
}

TEST_CASE("a call of the driver under a lock that forbids it ends the process, which names the lock") {
  Lock forbids{Rank::kRanges};
  Lock allows{Rank::kTimeline};
  CHECK(last_words([&] {
          take(allows);
          cupool::check_driver_call();
        }) == "");
  CHECK(has(last_words([&] {
              take(forbids);
              take(allows);
              cupool::check_driver_call();
            }),
            "driver is called while the thread holds the lock Ranges"));
  CHECK(last_words([&] {
          take(forbids);
          give_back(forbids);
          cupool::check_driver_call();
        }) == "");
}

TEST_CASE("a lock that another thread holds is no concern of this one") {
  Lock outer{Rank::kPools};
  Lock inner{Rank::kRanges};
  CHECK(last_words([&] {
          std::thread([&] { take(inner); }).join();
          take(outer);
        }) == "");
}

TEST_CASE("a lock is given back by the thread that took it") {
  Lock lock{Rank::kRanges};
  CHECK(has(last_words([&] {
              std::thread([&] { take(lock); }).join();
              give_back(lock);
            }),
            "gives back the lock Ranges, which it does not hold"));
}

TEST_CASE("a fork child does not hold a lock that it has reset") {
  Lock outer{Rank::kPools};
  Lock inner{Rank::kRanges};
  take(inner);
  CHECK(last_words([&] {
          inner.reset_after_fork();
          take(outer);
        }) == "");
  give_back(inner);
}
