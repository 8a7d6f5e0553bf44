// Counters: nothing is lost between threads, ended threads stay counted, a child starts at zero.
#include <algorithm>
#include <barrier>
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "stats/counters.hpp"
#include "stats/device.hpp"

using namespace cupool::stats;

TEST_CASE("counts of all threads add up, including threads that ended") {
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

TEST_CASE("a fork child starts at zero and counts on") {
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

namespace {

// ThreadTally that as many threads have brought: each enlists its own while all of them live.
void enlist_from_threads(Device& device, std::deque<ThreadTally>& all, size_t count) {
  for (size_t i = 0; i < count; ++i) all.emplace_back(device);
  std::barrier together(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (ThreadTally& one : all) {
    threads.emplace_back([&] {
      device.enlist(one);
      together.arrive_and_wait();
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("a peak is not overstated by frees that other threads have not published") {
  Device device;
  std::deque<ThreadTally> threads;
  enlist_from_threads(device, threads, 8);
  constexpr uint64_t kPart = kPeakBound * 7 / 8;
  for (ThreadTally& one : threads) {
    one.give(1, 1);
    one.take_back(1, 1);
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < threads.size(); ++i) threads[0].give(kPart, kPart);
    for (ThreadTally& one : threads) one.take_back(kPart, kPart);
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
    std::deque<ThreadTally> threads;
    enlist_from_threads(device, threads, kThreads);
    std::vector<uint64_t> blocks;
    uint64_t live = 0;
    uint64_t peak = 0;
    for (int i = 0; i < 400; ++i) {
      ThreadTally& thread = threads[random() % kThreads];
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
    CHECK(device.read().peak_live_most_bytes >= peak);
  }
}

TEST_CASE("one thread's peaks are exact, whatever it does in however many contexts") {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    Device device;
    std::deque<ThreadTally> contexts;
    for (unsigned i = 0; i < 1 + seed % 3; ++i) device.enlist(contexts.emplace_back(device));
    std::vector<std::pair<ThreadTally*, uint64_t>> blocks;
    uint64_t live = 0, peak = 0, cached = 0, reserved = 0;
    for (int i = 0; i < 300; ++i) {
      if (random() % 20 == 0) {
        device.reserve(1 << 20);
        reserved += 1 << 20;
      }
      if (!blocks.empty() && random() % 100 < 45) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        blocks.back().first->take_back(1, blocks.back().second);
        live -= blocks.back().second;
        blocks.pop_back();
        if (reserved > live) cached = std::max(cached, reserved - live);
      } else {
        blocks.push_back({&contexts[random() % contexts.size()], 1 + random() % 5000});
        blocks.back().first->give(1, blocks.back().second);
        live += blocks.back().second;
        peak = std::max(peak, live);
      }
    }
    INFO("seed " << seed);
    CHECK(device.read().peak_live_bytes == peak);
    CHECK(device.read().peak_live_most_bytes == peak);
    if (reserved != 0) cached = std::max(cached, reserved - live);
    CHECK(device.read().peak_cached_bytes == std::min(cached, reserved));
  }
}

TEST_CASE("a loop in one thread publishes to the device in its first iteration only") {
  Device device;
  ThreadTally holdings(device);
  device.enlist(holdings);
  device.reserve(1 << 20);
  holdings.give(100, 512);
  holdings.take_back(100, 512);
  device.reset_peaks();
  holdings.give(100, 512);
  holdings.take_back(100, 512);
  CHECK(device.read().peak_live_bytes == 512);
}
