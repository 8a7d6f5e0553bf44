// Several threads at once on one pool: they allocate, launch, hand blocks to each other and free what others
// allocated, while one more empties caches, trims, seals and lets work end. The reference knows of every
// overlap and of all work that is not ordered. The sanitizers run this too, so it is also where data races
// would show.
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "pool_world.hpp"
#include "reference.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 10'000;
#else
constexpr int kRounds = 100'000;
#endif
constexpr int kThreads = 4;

struct Crowd : BasicPoolWorld<ClockedDriver> {
  Reference reference;
  order::Reuse reuse = order::Reuse::kLean;
  std::mutex mutex;
  std::vector<Life> passed_on;
  std::atomic<int> overlaps{0}, unordered{0}, early{0}, refused{0}, lost{0}, running{0};

  void launch(size_t stream, Life& life) {
    // Some of the work is not seen, where we know of that.
    const bool is_seen = reuse != order::Reuse::kOrder || life.bytes % 4 != 0;
    if (is_seen &&
        !time().before_submit(lane_of_stream(stream), BasicPoolWorld::stream(lane_of_stream(stream))))
      ++refused;
    if (!driver.submit(stream, life)) ++unordered;
    if (is_seen) time().after_submit(lane_of_stream(stream));
  }
  void give_back(const Life& life) {
    reference.remove(life);
    ClockedDriver::is_in_free = true;
    if (memory.free(life.start) != memory::Freed::kDone) ++lost;
    ClockedDriver::is_in_free = false;
  }
  bool take_passed_on(Life* life) {
    const std::lock_guard hold(mutex);
    if (passed_on.empty()) return false;
    *life = passed_on.back();
    passed_on.pop_back();
    return true;
  }
  void pass_on(const Life& life) {
    const std::lock_guard hold(mutex);
    passed_on.push_back(life);
  }

  void live(int number, size_t streams) {
    std::mt19937_64 random(static_cast<uint64_t>(number));
    for (int i = 0; i < kRounds; ++i) {
      Life life;
      const uint64_t octave = uint64_t{1} << random() % (random() % 16 == 0 ? 22 : 14);
      life.bytes = octave + random() % octave;
      if (memory.allocate(context, life.bytes, &life.start) != driver::kSuccess) {
        ++refused;
        continue;
      }
      if (!reference.add(life)) ++overlaps;
      if (reuse == order::Reuse::kCompleted && !driver.is_over(life.follows)) ++early;
      // Mostly a thread's own stream, sometimes any.
      const size_t own = static_cast<size_t>(number) % streams;
      launch(random() % 50 == 0 ? random() % streams : own, life);
      memory::BlockInfo held;
      if (!memory.find(life.start + life.bytes / 2, &held) || held.start != life.start) ++lost;
      if (random() % 2 == 0) {
        give_back(life);
      } else {
        pass_on(life);
      }
      if (random() % 2 == 0 && take_passed_on(&life)) {
        if (random() % 4 == 0) launch(own, life);
        give_back(life);
      }
    }
    --running;
  }
  void disturb() {
    std::mt19937_64 random(99);
    while (running.load() != 0) {
      driver.progress(random() % kStreams, 1 + random() % 50);
      time().advance();
      const uint64_t dice = random() % 1000;
      if (dice < 5) pool().caches().empty_all();
      if (dice == 5) pool().release_everything();
      if (dice == 6) pool().segments().releasable_bytes();
      if (dice == 7) time().seal_for_completion();
      if (dice == 8) time().destroy_stream(lane_of_stream(kStreams));
      if (dice == 9) {
        memory.order().gate().begin_capture();
        memory.order().gate().end_capture();
      }
      if (dice == 10) {
        const order::Epoch epoch = time().begin_wait(order::Lane::kMany);
        driver.synchronize(context);
        time().end_wait(epoch, true);
      }
      std::this_thread::yield();
    }
  }
  void run(size_t streams) {
    free(allocate(1));
    if (reuse == order::Reuse::kOrder) memory.order().expect_untracked_work("a test");
    if (reuse == order::Reuse::kCompleted) memory.order().use_completed_only("a test");
    driver.ends_when_asked = reuse == order::Reuse::kCompleted;
    running = kThreads;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([this, i, streams] { live(i + 1, streams); });
    disturb();
    for (auto& thread : threads) thread.join();
    CHECK(overlaps == 0);
    CHECK(unordered == 0);
    CHECK(early == 0);
    CHECK(driver.strays == 0);
    CHECK(refused == 0);
    CHECK(lost == 0);
    for (const Life& life : passed_on) give_back(life);
    check_records();
    pool().release_everything();
    CHECK(reserved() == 0);
    CHECK(driver.reserved == 0);
    CHECK(pool().caches().live_bytes() == 0);
  }
};

}  // namespace

TEST_CASE_METHOD(Crowd,
                 "threads that share one stream share memory without overlap and without a wait too few") {
  run(1);
}

TEST_CASE_METHOD(Crowd, "threads with two streams share memory without overlap and without a wait too few") {
  run(2);
}

TEST_CASE_METHOD(
    Crowd, "threads with streams of their own share memory without overlap and without a wait too few") {
  run(kStreams);
}

TEST_CASE_METHOD(Crowd, "threads whose work is not all seen share memory, ordered by waits of the context") {
  reuse = order::Reuse::kOrder;
  run(kStreams);
  CHECK(driver.orders > 0);
}

TEST_CASE_METHOD(Crowd,
                 "where reuse is exact, threads get memory only when the work of its old life is over") {
  reuse = order::Reuse::kCompleted;
  run(kStreams);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(BasicPoolWorld<ClockedDriver>, "threads that come and go leave no memory behind") {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([this] {
        for (uint64_t size = 1; size < 2 * kMiB; size *= 2) {
          driver::Address address = 0;
          if (memory.allocate(context, size, &address) == driver::kSuccess) memory.free(address);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  pool().release_everything();
  CHECK(reserved() == 0);
}

TEST_CASE_METHOD(PoolWorld, "a thread is seen in every context that it submits to, not only in its first") {
  const auto another = reinterpret_cast<driver::Context>(0x20);
  allocate(kMiB);
  driver::Address block = 0;
  REQUIRE(memory.allocate(another, kMiB, &block) == driver::kSuccess);
  work(kS);
  std::thread([&] {
    memory.order().find(another)->after_submit(kS);
    CHECK_FALSE(time().has_several_threads());
    work(kS);
  }).join();
  CHECK(time().has_several_threads());
  memory.close(another);
}

TEST_CASE_METHOD(PoolWorld, "a thread is seen in a context that has the place of one that ended") {
  std::atomic<int> step{0};
  const auto wait_for = [&](int wanted) {
    while (step != wanted) std::this_thread::yield();
  };
  allocate(kMiB);
  work(kS);
  memory.close(context);
  std::thread other([&] {
    allocate(kMiB);
    work(kS);
    memory.close(context);
    step = 1;
    wait_for(2);
    work(kS);
  });
  wait_for(1);
  allocate(kMiB);
  work(kS);
  CHECK_FALSE(time().has_several_threads());
  step = 2;
  other.join();
  CHECK(time().has_several_threads());
}

TEST_CASE("only threads that keep something are stopped when memory is short") {
  BasicPoolWorld<ClockedDriver> world;
  std::atomic<int> ready{0};
  std::atomic<bool> over{false};
  const auto use = [&](bool keeps) {
    driver::Address block = 0;
    CHECK(world.memory.allocate(world.context, 1024, &block) == driver::kSuccess);
    if (keeps) CHECK(world.memory.free(block) == memory::Freed::kDone);
    ready.fetch_add(1);
    while (!over.load()) std::this_thread::yield();
  };
  std::thread keeps(use, true);
  while (ready.load() != 1) std::this_thread::yield();
  world.pool().caches().empty_all();
  const auto emptied = [&] { return stats::device(0).read().thread_caches_emptied; };
  const uint64_t before = emptied();
  std::thread holds(use, false);
  while (ready.load() != 2) std::this_thread::yield();
  world.pool().caches().empty_all();
  // The batch that came with the second thread's block, and nothing of the first's.
  CHECK(emptied() - before == 1);
  over.store(true);
  keeps.join();
  holds.join();
}

TEST_CASE("among many threads a request that only wants to grow empties their caches now and then") {
  BasicPoolWorld<ClockedDriver> world;
  constexpr int kMany = 32;
  std::atomic<int> ready{0};
  std::atomic<int> failed{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kMany; ++i) {
    threads.emplace_back([&] {
      driver::Address block = 0;
      if (world.memory.allocate(world.context, 1024, &block) != driver::kSuccess) failed.fetch_add(1);
      ready.fetch_add(1);
      // An allocation may empty the others' caches, a free does not: then each keeps something.
      while (ready.load() < kMany) std::this_thread::yield();
      if (world.memory.free(block) != memory::Freed::kDone) failed.fetch_add(1);
      ready.fetch_add(1);
      while (!over.load()) std::this_thread::yield();
    });
  }
  while (ready.load() != 2 * kMany) std::this_thread::yield();
  CHECK(failed == 0);
  int emptyings = 0;
  for (int i = 0; i < 320; ++i) emptyings += world.pool().caches().is_time_to_empty(64 << 10) ? 1 : 0;
  CHECK(emptyings > 0);
  CHECK(emptyings <= 320 / kMany + 1);
  over.store(true);
  for (std::thread& thread : threads) thread.join();
}

namespace {

struct AskedDriver : FakeDriver {
  std::function<void()> on_allocate = [] {};
  std::vector<uint64_t> asked;
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    asked.push_back(bytes);
    on_allocate();
    return FakeDriver::allocate(bytes, out);
  }
};

}  // namespace

TEST_CASE("threads that need more memory at the same moment do not each take a segment for many") {
  BasicPoolWorld<AskedDriver> world;
  world.allocate(64 * kMiB);
  world.driver.asked.clear();
  bool is_first = true;
  world.driver.on_allocate = [&] {
    if (!std::exchange(is_first, false)) return;
    // The first thread stands in the driver.
    std::thread([&] { world.allocate(3 * kMiB); }).join();
  };
  world.allocate(3 * kMiB);
  REQUIRE(world.driver.asked.size() == 2);
  CHECK(world.driver.asked[0] >= 2 * world.driver.asked[1]);
  CHECK(world.driver.asked[1] >= 3 * kMiB);
}
