// What a thread keeps to itself beyond small blocks: the one large block of a loop, and ranges of middle
// size. Kept memory cannot be merged, so these are promises about memory as much as about speed.
#include <atomic>
#include <thread>
#include <vector>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

struct KeepingWorld : PoolWorld {
  uint64_t free_bytes() { return pool().ranges().bytes().free(); }
  // pre: the program holds nothing, and never had small blocks.
  uint64_t kept() { return reserved() - free_bytes(); }
  // Some thirty sizes at once, so many of each, and all of them back.
  void come_and_go(int each) {
    std::vector<driver::Address> blocks;
    for (int i = 0; i < each; ++i) {
      for (uint64_t bytes = 48 * kKiB; bytes <= kMiB; bytes += 32 * kKiB) blocks.push_back(allocate(bytes));
    }
    for (const auto block : blocks) free(block);
  }
};

}  // namespace

TEST_CASE_METHOD(KeepingWorld, "the large block that a thread was given last is kept when it is freed") {
  const auto block = allocate(4 * kMiB);
  const uint64_t idle = free_bytes();
  free(block);
  CHECK(free_bytes() == idle);
  CHECK(allocate(4 * kMiB) == block);
}

TEST_CASE_METHOD(KeepingWorld, "any other large block is merged when it is freed") {
  const auto first = allocate(4 * kMiB);
  const auto second = allocate(4 * kMiB);
  const uint64_t idle = free_bytes();
  free(first);
  CHECK(free_bytes() == idle + 4 * kMiB);
  free(second);
  CHECK(free_bytes() == idle + 4 * kMiB);
}

TEST_CASE_METHOD(KeepingWorld,
                 "a thread that turns over several large blocks of one size comes to keep them") {
  auto older = allocate(4 * kMiB);
  auto newer = allocate(4 * kMiB);
  const uint64_t idle = free_bytes();
  for (int i = 0; i < 10; ++i) {
    free(older);
    older = newer;
    newer = allocate(4 * kMiB);
  }
  free(older);
  CHECK(free_bytes() == idle);
  // Until it asks for something else.
  const auto other = allocate(6 * kMiB);
  const uint64_t left = free_bytes();
  free(newer);
  CHECK(free_bytes() == left + 4 * kMiB);
  free(other);
}

TEST_CASE_METHOD(KeepingWorld, "a thread that asks for no large blocks keeps more of the middle sizes") {
  come_and_go(1);
  CHECK(kept() <= kMiB);
  for (int i = 0; i < 4; ++i) come_and_go(4);
  const uint64_t most = kept();
  CHECK(most > 4 * kMiB);
  CHECK(most <= reserved() / 4);
  // After one large block it gives them up again.
  free(allocate(2 * kMiB));
  come_and_go(1);
  CHECK(kept() < most / 2);
  check_records();
}

TEST_CASE_METHOD(KeepingWorld, "middle sizes that a thread keeps are given up before the pool grows") {
  for (int i = 0; i < 8; ++i) come_and_go(4);
  const auto driver_allocations = driver.allocations;
  REQUIRE(kept() > 4 * kMiB);
  std::vector<driver::Address> blocks;
  for (uint64_t bytes = 0; bytes + reserved() / 8 < reserved(); bytes += kMiB)
    blocks.push_back(allocate(kMiB));
  CHECK(driver.allocations == driver_allocations);
  for (const auto block : blocks) free(block);
  check_records();
}

TEST_CASE_METHOD(KeepingWorld, "a thread whose cache had to be emptied keeps less from then on") {
  for (int i = 0; i < 8; ++i) come_and_go(4);
  const uint64_t before = kept();
  REQUIRE(before > 4 * kMiB);
  // As another thread does when it finds nothing: the hoarder must not be its victim again and again.
  for (int i = 0; i < 3; ++i) {
    pool().caches().empty_all();
    come_and_go(1);
  }
  CHECK(kept() <= before / 4);
}

TEST_CASE_METHOD(KeepingWorld,
                 "a large block that another thread keeps is taken before a larger one is cut") {
  const auto larger = allocate(128 * kMiB);
  const auto kept = allocate(64 * kMiB);
  free(larger);
  free(kept);
  driver::Address elsewhere = 0;
  std::thread([&] { elsewhere = allocate(64 * kMiB); }).join();
  CHECK(elsewhere == kept);
  CHECK(allocate(128 * kMiB) == larger);
}

TEST_CASE_METHOD(KeepingWorld, "threads at work do not take the large blocks that others keep all the time") {
  constexpr int kRounds = 100;
  free(allocate(512 * kMiB));
  std::atomic<int> turn{0};
  std::atomic<int> lost{0};
  // Each frees two blocks and keeps one of them, as the other thread does in between.
  const auto work = [&](int number) {
    driver::Address kept = 0;
    for (int round = 0; round < kRounds; ++round) {
      while (turn.load() != 2 * round + number) std::this_thread::yield();
      const driver::Address first = allocate(32 * kMiB);
      const driver::Address second = allocate(32 * kMiB);
      if (kept != 0 && first != kept) ++lost;
      free(first);
      free(second);
      kept = second;
      ++turn;
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(lost.load() <= 2 * kRounds / 10);
}
