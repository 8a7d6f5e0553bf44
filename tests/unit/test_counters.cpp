// Counters: nothing is lost between threads, ended threads stay counted, a child starts at zero.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "stats/counters.hpp"
#include "stats/device.hpp"

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

TEST_CASE("a peak is no higher than it was, though others have not told what they freed") {
  Device device;
  std::deque<Holdings> threads;
  for (int i = 0; i < 8; ++i) device.enlist(threads.emplace_back(device));
  constexpr uint64_t kPart = kPeakBound * 7 / 8;
  for (Holdings& one : threads) {
    one.give(1, 1);
    one.take_back(1, 1);
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < threads.size(); ++i) threads[0].give(kPart, kPart);
    for (Holdings& one : threads) one.take_back(kPart, kPart);
  }
  const DeviceSums sums = device.read();
  CHECK(sums.live_bytes == 0);
  CHECK(sums.peak_live_bytes <= 8 * kPart);
  CHECK(sums.peak_live_bytes + kPeakBound >= 8 * kPart);
  CHECK(sums.peak_asked_bytes == sums.peak_live_bytes);
}

TEST_CASE("peaks are never above the truth, and below it by at most the bound for each thread") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    constexpr size_t kThreads = 4;
    Device device;
    std::deque<Holdings> threads;
    for (size_t i = 0; i < kThreads; ++i) device.enlist(threads.emplace_back(device));
    std::vector<uint64_t> blocks;
    uint64_t live = 0;
    uint64_t peak = 0;
    for (int i = 0; i < 400; ++i) {
      Holdings& thread = threads[random() % kThreads];
      if (!blocks.empty() && random() % 100 < 45) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        thread.take_back(blocks.back(), blocks.back());
        live -= blocks.back();
        blocks.pop_back();
      } else {
        blocks.push_back(1 + random() % (random() % 16 == 0 ? 4 * kPeakBound : kPeakBound / 4));
        thread.give(blocks.back(), blocks.back());
        live += blocks.back();
        peak = std::max(peak, live);
      }
    }
    INFO("seed " << seed);
    CHECK(device.read().live_bytes == live);
    CHECK(device.read().peak_live_bytes <= peak);
    CHECK(device.read().peak_live_bytes + kThreads * kPeakBound >= peak);
  }
}
