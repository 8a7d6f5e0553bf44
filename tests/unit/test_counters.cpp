// Counters: nothing is lost between threads, ended threads stay counted, a child starts at zero.
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "stats/counters.hpp"

using namespace cupool::stats;

TEST_CASE("counts of all threads add up, also of threads that ended") {
  forget_after_fork();
  constexpr int kThreads = 8, kRounds = 10000;
  for (int wave = 0; wave < 2; ++wave) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([] {
        for (int round = 0; round < kRounds; ++round) {
          count(Counter::submissions);
          count(Event::captures);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  count(Counter::submissions, 5);
  CHECK(sums().submissions == 2u * kThreads * kRounds + 5);
  CHECK(sums().captures == 2u * kThreads * kRounds);
}

TEST_CASE("a forked child starts at zero and counts on") {
  count(Counter::failed_frees, 3);
  count(Event::ipc_exports);
  forget_after_fork();
  visit(sums(), [](const CounterInfo& info, uint64_t value) {
    INFO(info.name);
    CHECK(value == 0);
  });
  count(Counter::failed_frees);
  CHECK(sums().failed_frees == 1);
}
