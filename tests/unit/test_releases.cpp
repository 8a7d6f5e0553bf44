// Memory that one thread gives back while another looks for some: what waits for it, and what must not.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/clock.hpp"
#include "order/submission_gate.hpp"
#include "pool_world.hpp"
#include "stats/counters.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constexpr uint64_t kDecayMs = 2;
const bool environment_is_set = setenv("CUPOOL_DECAY_MS", "2", 1) == 0;

constinit thread_local int current_device = 0;

// A release on device 1 ends when the other thread has got its answer, or has been stuck for long.
struct TwoDevices final : FakeDriver {
  std::atomic<bool> is_releasing{false};
  std::atomic<bool> is_answered{false};
  driver::Status device(int* number) override {
    *number = current_device;
    return driver::kSuccess;
  }
  driver::Status release_in(driver::Context context, driver::Address start) override {
    constexpr uint64_t kLong = 2'000'000'000;
    if (current_device == 1) {
      is_releasing = true;
      const uint64_t begin = now_ns();
      while (!is_answered && now_ns() - begin < kLong) std::this_thread::yield();
      is_released = true;
    }
    return FakeDriver::release_in(context, start);
  }
  std::atomic<bool> is_released{false};
};

// Another thread that is in a submission for as long as this exists.
class Submitting {
 public:
  Submitting() {
    while (step_ != 1) std::this_thread::yield();
  }
  ~Submitting() {
    step_ = 2;
    thread_.join();
  }
  Submitting(const Submitting&) = delete;
  Submitting& operator=(const Submitting&) = delete;

 private:
  std::atomic<int> step_{0};
  std::thread thread_{[this] {
    const order::SubmissionGate::Pass pass;
    step_ = 1;
    while (step_ != 2) std::this_thread::yield();
  }};
};

struct ReleaseWorld : BasicPoolWorld<TwoDevices> {
  // The other device's work may wait for what this thread does next.
  void expect_no_wait_for_another_device() {
    const auto another = reinterpret_cast<driver::Context>(0x20);
    allocate(10 * kMiB);
    std::thread other([&] {
      current_device = 1;
      driver::Address block = 0;
      CHECK(memory.allocate(another, 40 * kMiB, &block) == driver::kSuccess);
      CHECK(memory.free(block) == memory::Freed::kDone);
      driver.capacity = driver.reserved;
      memory.idle().trim(0);
    });
    while (!driver.is_releasing) std::this_thread::yield();
    driver::Address block = 0;
    CHECK(memory.allocate(context, 100 * kMiB, &block) == driver::kOutOfMemory);
    CHECK_FALSE(driver.is_released);
    driver.is_answered = true;
    other.join();
    memory.close(another);
  }
};

}  // namespace

TEST_CASE_METHOD(ReleaseWorld, "an allocation does not wait for memory that another device gets back") {
  expect_no_wait_for_another_device();
}

TEST_CASE_METHOD(ReleaseWorld, "nor does one of a dedicated block") {
  memory.use_dedicated_allocations();
  expect_no_wait_for_another_device();
}

TEST_CASE_METHOD(ReleaseWorld, "idle dedicated blocks of another device stay where they are") {
  const auto another = reinterpret_cast<driver::Context>(0x20);
  memory.use_dedicated_allocations();
  allocate(10 * kMiB);
  driver.is_answered = true;
  std::thread([&] {
    current_device = 1;
    driver::Address block = 0;
    CHECK(memory.allocate(another, 40 * kMiB, &block) == driver::kSuccess);
    CHECK(memory.free(block) == memory::Freed::kDone);
  }).join();
  driver.capacity = driver.reserved;
  driver::Address block = 0;
  CHECK(memory.allocate(context, 30 * kMiB, &block) == driver::kOutOfMemory);
  CHECK(driver.releases == 0);
  memory.close(another);
}

// ---- Several threads.

namespace {

struct ThreadsWorld : PoolWorld {
  ThreadsWorld() {
    const order::SubmissionGate::Pass prepared;
    allocate(kMiB);
    work(kS);
    std::thread([&] { work(kS); }).join();
    REQUIRE(time().has_several_threads());
  }
  // A segment that does not suit the next request, with work of this thread on it.
  void free_a_segment() {
    const driver::Address block = allocate(100 * kMiB);
    work(kS);
    free(block);
  }
  // Whether a request that needs a new segment gave the other one back first.
  bool releases_before_growing() {
    const uint64_t before = driver.releases + driver.ordered_releases;
    allocate(300 * kMiB);
    return driver.releases + driver.ordered_releases != before;
  }
};

}  // namespace

TEST_CASE_METHOD(ThreadsWorld,
                 "with several threads, too, segments of no use go back before the pool grows") {
  driver.end_work_when_watched();
  free_a_segment();
  CHECK(releases_before_growing());
}

TEST_CASE_METHOD(ThreadsWorld,
                 "growing does not wait for long for work that the last free has not waited for") {
  free_a_segment();
  CHECK_FALSE(releases_before_growing());
  const uint64_t waits = stats::sums().pool_waits;
  free_a_segment();
  CHECK_FALSE(releases_before_growing());
  CHECK(stats::sums().pool_waits == waits);
}

TEST_CASE_METHOD(ThreadsWorld, "growing does not wait for what another thread submitted after the free") {
  free_a_segment();
  std::thread([&] { work(kS); }).join();
  CHECK_FALSE(releases_before_growing());
}

TEST_CASE_METHOD(ThreadsWorld, "growing does not wait for what only another thread's free had to wait for") {
  std::thread([&] { free_a_segment(); }).join();
  CHECK_FALSE(releases_before_growing());
}

TEST_CASE_METHOD(ThreadsWorld, "growing holds up no thread that submits") {
  driver.ordered_frees = true;
  driver.end_work_when_watched();
  free_a_segment();
  const Submitting other;
  CHECK(releases_before_growing());
  CHECK(driver.releases == 0);
}

// ---- One thread, as far as is known.

namespace {

struct OneThreadWorld : PoolWorld {
  OneThreadWorld() {
    const order::SubmissionGate::Pass prepared;
    const driver::Address block = allocate(100 * kMiB);
    work(kS);
    free(block);
    REQUIRE_FALSE(time().has_several_threads());
  }
  bool releases_before_growing() {
    const uint64_t before = driver.releases + driver.ordered_releases;
    allocate(300 * kMiB);
    return driver.releases + driver.ordered_releases != before;
  }
};

}  // namespace

TEST_CASE_METHOD(OneThreadWorld, "with one thread, segments of no use go back before the pool grows") {
  driver.end_work_when_watched();
  CHECK(releases_before_growing());
}

TEST_CASE_METHOD(OneThreadWorld, "growing does not wait while a second thread makes its first submission") {
  driver.ordered_frees = true;
  driver.end_work_when_watched();
  const Submitting other;
  CHECK_FALSE(releases_before_growing());
}

TEST_CASE_METHOD(OneThreadWorld,
                 "growing in a thread that only frees does not wait for what another submitted") {
  const driver::Address small = allocate(4 * kKiB);
  std::atomic<int> step{0};
  std::thread other([&] {
    free(small);
    step = 1;
    while (step != 2) std::this_thread::yield();
    CHECK_FALSE(releases_before_growing());
  });
  while (step != 1) std::this_thread::yield();
  work(kS);
  REQUIRE_FALSE(time().has_several_threads());
  step = 2;
  other.join();
}

TEST_CASE_METHOD(OneThreadWorld, "growing does not wait for what may have been submitted unseen") {
  memory.order().expect_untracked_work("a test");
  CHECK_FALSE(releases_before_growing());
}

TEST_CASE_METHOD(OneThreadWorld, "no work is made to wait for what growing recorded to wait for itself") {
  const driver::Address small = allocate(4 * kKiB);
  work(kS);
  free(small);
  const uint64_t records = driver.records;
  const order::Epoch reachable = time().reachable();
  CHECK_FALSE(releases_before_growing());
  CHECK(driver.records == records + 1);
  CHECK(time().reachable() == reachable);
}

// ---- Memory that nobody needs.

namespace {

bool always() { return true; }

struct QuietWorld : PoolWorld {
  QuietWorld() {
    REQUIRE(environment_is_set);
    const order::SubmissionGate::Pass prepared;
    const driver::Address block = allocate(100 * kMiB);
    work(kS);
    free(block);
  }
  void finish() {
    driver.done_at_once = true;
    driver.finish();
  }
  void look() {
    memory.idle().decay_quiet(always);
    const uint64_t begin = now_ns();
    const uint64_t period = 2 * kDecayMs * 1'000'000;
    while (now_ns() - begin < period) std::this_thread::yield();
  }
};

}  // namespace

TEST_CASE_METHOD(QuietWorld, "the memory of a program that makes no call any more goes back") {
  finish();
  for (int i = 0; i < 4; ++i) look();
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(QuietWorld, "nothing goes back by itself while work is pending") {
  for (int i = 0; i < 4; ++i) look();
  CHECK(driver.reserved != 0);
}

TEST_CASE_METHOD(QuietWorld, "nothing goes back by itself between a program's launches") {
  finish();
  for (int i = 0; i < 4; ++i) {
    look();
    work(kS);
    const order::Epoch epoch = time().begin_wait(order::Lane::kMany);
    time().end_wait(epoch, true);
  }
  CHECK(driver.reserved != 0);
}

TEST_CASE_METHOD(QuietWorld, "another process gets what is idle at once, and nothing that work still uses") {
  CHECK(memory.idle().release_for_others(0, kMiB, always) == 0);
  finish();
  CHECK(memory.idle().release_for_others(1, kMiB, always) == 0);
  CHECK(memory.idle().release_for_others(0, kMiB, always) != 0);
  CHECK(driver.reserved == 0);
}

namespace {

constinit int calls_left = 0;
bool while_calls_are_left() { return calls_left-- > 0; }

}  // namespace

// Whoever ends the process or a context waits for the thread that releases.
TEST_CASE_METHOD(QuietWorld, "a release ends before the next call of the driver when it is told to") {
  driver::Address blocks[3];
  for (driver::Address& block : blocks) block = allocate(100 * kMiB);
  for (const driver::Address block : blocks) free(block);
  finish();
  const uint64_t reserved = driver.reserved;
  REQUIRE(reserved >= 300 * kMiB);
  calls_left = 0;
  CHECK(memory.idle().release_for_others(0, 1000 * kMiB, while_calls_are_left) == 0);
  calls_left = 1;
  CHECK(memory.idle().release_for_others(0, 1000 * kMiB, while_calls_are_left) < reserved);
  CHECK(driver.reserved != 0);
  CHECK(memory.idle().release_for_others(0, 1000 * kMiB, always) != 0);
  CHECK(driver.reserved == 0);
}
