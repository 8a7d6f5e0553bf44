// The gate that holds submissions back while memory goes back to the driver.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "order/submission_gate.hpp"
#include "other_thread.hpp"

using cupool::order::SubmissionGate;
using cupool::test::OtherThread;

namespace {

// The first pass of the process prepares the gate.
void prepare() { const SubmissionGate::Pass pass; }

void run(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("memory goes back while no thread submits") {
  prepare();
  const SubmissionGate::Closing closing;
  CHECK(closing.is_closed());
}

TEST_CASE("nothing goes back while a submission is under way, and nobody waits for it") {
  prepare();
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  std::thread submits([&] {
    const SubmissionGate::Pass pass;
    inside.store(true);
    while (!leave.load()) std::this_thread::yield();
  });
  while (!inside.load()) std::this_thread::yield();
  CHECK_FALSE(SubmissionGate::Closing().is_closed());
  leave.store(true);
  submits.join();
  CHECK(SubmissionGate::Closing().is_closed());
}

TEST_CASE("a submission begins when the memory has gone back, not before") {
  prepare();
  auto closing = std::make_unique<SubmissionGate::Closing>();
  REQUIRE(closing->is_closed());
  std::atomic<bool> is_open{false};
  std::atomic<bool> was_open{false};
  OtherThread submits([&] {
    const SubmissionGate::Pass pass;
    was_open.store(is_open.load());
  });
  CHECK(submits.stands());
  is_open.store(true);
  closing.reset();
  submits.join();
  CHECK(was_open.load());
}

TEST_CASE("two threads do not close the gate at once") {
  prepare();
  const SubmissionGate::Closing first;
  REQUIRE(first.is_closed());
  bool closed_again = true;
  std::thread([&] { closed_again = SubmissionGate::Closing().is_closed(); }).join();
  CHECK_FALSE(closed_again);
}

TEST_CASE("no submission and no release are ever under way together") {
  prepare();
  constexpr int kSubmissions = 200'000;
  std::atomic<int> running{2};
  std::atomic<int> inside{0};
  std::atomic<bool> releasing{false};
  std::atomic<int> together{0};
  std::atomic<int> releases{0};
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kSubmissions; ++n) {
        const SubmissionGate::Pass pass;
        inside.fetch_add(1, std::memory_order_relaxed);
        if (releasing.load(std::memory_order_relaxed)) together.fetch_add(1);
        inside.fetch_sub(1, std::memory_order_relaxed);
        passed.fetch_add(1, std::memory_order_relaxed);
      }
      running.fetch_sub(1);
    });
  }
  threads.emplace_back([&] {
    int seen = -1;
    while (running.load() != 0 || releases.load() == 0) {
      // Who closes the gate without a pause lets nobody pass.
      if (running.load() != 0 && passed.load(std::memory_order_relaxed) == seen) continue;
      const SubmissionGate::Closing closing;
      if (!closing.is_closed()) continue;
      releasing.store(true, std::memory_order_relaxed);
      if (inside.load(std::memory_order_relaxed) != 0) together.fetch_add(1);
      releases.fetch_add(1);
      releasing.store(false, std::memory_order_relaxed);
      seen = passed.load(std::memory_order_relaxed);
    }
  });
  run(threads);
  CHECK(together.load() == 0);
}

TEST_CASE("threads that are gone do not keep the gate from closing") {
  prepare();
  for (int i = 0; i < 1100; ++i) std::thread([] { const SubmissionGate::Pass pass; }).join();
  CHECK(SubmissionGate::Closing().is_closed());
}

TEST_CASE("two thousand threads that submit at once do not keep the gate from closing later") {
  prepare();
  constexpr int kThreads = 2000;
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      { const SubmissionGate::Pass pass; }
      passed.fetch_add(1);
      while (passed.load() < kThreads) std::this_thread::yield();
    });
  }
  run(threads);
  CHECK(SubmissionGate::Closing().is_closed());
}
