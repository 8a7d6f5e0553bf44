// Contexts that end while other threads allocate and free there, or end themselves: what such a thread gets
// or keeps dies with the context, and is never handed out in the next one, which has the same handle.
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "other_thread.hpp"
#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct WatchedDriver : FakeDriver {
  std::function<void()> on_allocate = [] {};
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    const driver::Status status = FakeDriver::allocate(bytes, out);
    on_allocate();
    return status;
  }
  std::function<void()> on_memory = [] {};
  driver::Status memory(size_t* free, size_t* total) override {
    on_memory();
    return FakeDriver::memory(free, total);
  }
};

struct EndingWorld : BasicPoolWorld<WatchedDriver> {
  void expect_nothing_kept_while_ending() {
    free(allocate(5000));
    const uint64_t ending = memory.begin_end(context);
    const uint64_t before = driver.allocations;
    const auto lost = allocate(5000);
    CHECK(driver.allocations == before + 1);
    CHECK_FALSE(memory.owns(lost));
    memory.closed(context, ending, true);
    const auto next = allocate(5000);
    CHECK(driver.allocations == before + 2);
    CHECK(memory.owns(next));
  }

  void expect_nothing_kept_of_what_is_under_way() {
    std::optional<OtherThread> other;
    driver.on_allocate = [&] {
      if (other) return;
      // It drops everything now, if it does not wait for us.
      other.emplace([&] { memory.close(context); });
      other->stands();
    };
    const auto lost = allocate(5000);
    REQUIRE(other);
    other->join();
    driver.on_allocate = [] {};
    CHECK_FALSE(memory.owns(lost));
    const uint64_t before = driver.allocations;
    allocate(5000);
    CHECK(driver.allocations == before + 1);
  }

  // A thread allocates and frees, and then leaves in its own way. It is held up in the middle of that, until
  // the context ends too.
  void meet_the_end(int count, const std::function<void(std::vector<driver::Address>&)>& begin,
                    const std::function<void(std::vector<driver::Address>&)>& leave) {
    for (int round = 0; round < 40; ++round) {
      std::atomic<bool> ready{false};
      std::atomic<bool> go{false};
      allocate(5000);
      OtherThread leaver([&] {
        std::vector<driver::Address> blocks;
        for (uint64_t bytes = 512; bytes <= 4 << 20; bytes += bytes / 2)
          for (int i = 0; i < count; ++i) blocks.push_back(allocate(bytes));
        begin(blocks);
        ready.store(true);
        while (!go.load()) std::this_thread::yield();
        leave(blocks);
      });
      while (!ready.load()) std::this_thread::yield();
      std::optional<OtherThread> closer;
      {
        Guard hold(pool().ranges().lock());
        go.store(true);
        CHECK(leaver.stands());
        closer.emplace([&] { memory.close(context); });
        CHECK(closer->stands());
      }
      leaver.join();
      closer->join();
      free(allocate(5000));
      check_records();
    }
  }
};

}  // namespace

TEST_CASE_METHOD(EndingWorld, "while a context ends its allocations are the driver's, and nothing is kept") {
  expect_nothing_kept_while_ending();
}

TEST_CASE_METHOD(EndingWorld, "while a context ends nothing is kept of dedicated blocks either") {
  memory.use_dedicated_allocations();
  expect_nothing_kept_while_ending();
}

TEST_CASE_METHOD(EndingWorld, "a segment that is taken as its context ends is not kept for the next one") {
  expect_nothing_kept_of_what_is_under_way();
}

TEST_CASE_METHOD(EndingWorld,
                 "a dedicated block that is taken as its context ends is not kept for the next one") {
  memory.use_dedicated_allocations();
  expect_nothing_kept_of_what_is_under_way();
}

TEST_CASE_METHOD(EndingWorld, "a pool that was closed rests before it serves another context") {
  allocate(5000);
  const pool::Pool* const first = &pool();
  for (int i = 0; i < 8; ++i) {
    memory.close(context);
    allocate(5000);
    CHECK(&pool() != first);
  }
  memory.close(context);
  allocate(5000);
  CHECK(&pool() == first);
}

TEST_CASE_METHOD(EndingWorld, "a thread that is done with CUDA may end as its context does") {
  meet_the_end(
      3,
      [&](std::vector<driver::Address>& blocks) {
        for (const driver::Address block : blocks) free(block);
      },
      [](std::vector<driver::Address>&) {});
}

TEST_CASE_METHOD(EndingWorld, "frees that meet the end of their context leave nothing for the next one") {
  // So many that most of them find no room with the thread.
  meet_the_end(
      40, [](std::vector<driver::Address>&) {},
      [&](std::vector<driver::Address>& blocks) {
        for (const driver::Address block : blocks) memory.free(block);
        for (const driver::Address block : blocks) CHECK(memory.free(block) != memory::Freed::kDone);
      });
}

TEST_CASE_METHOD(EndingWorld, "what a free keeps as its context ends is gone when its pool serves again") {
  const auto old = allocate(5000);
  pool::Pool* const first = &pool();
  const pool::BlockRecord* const record = pool::page_map.find(old);
  const pool::Entry entry{old, record->range, 0, record->tags + record->index_of(old)};
  pool::ThreadCache& cache = *pool::this_thread.last;
  for (int i = 0; i < 9; ++i) {
    memory.close(context);
    // A free that had looked at the context before it ended.
    if (i == 0) REQUIRE(first->caches().keep(cache, first->sizes().of(5000), entry));
    const auto next = allocate(5000);
    CHECK(memory.owns(next));
    CHECK(next != old);
  }
  CHECK(&pool() == first);
}

TEST_CASE_METHOD(EndingWorld, "a context ends after the word about what it could not have") {
  memory.use_dedicated_allocations();
  allocate(5000);
  driver.capacity = driver.reserved;
  std::optional<OtherThread> other;
  driver.on_memory = [&] {
    if (other) return;
    other.emplace([&] { memory.close(context); });
    CHECK(other->stands());
  };
  driver::Address address = 0;
  CHECK(memory.allocate(context, 10 * kMiB, &address) == driver::kOutOfMemory);
  REQUIRE(other);
  other->join();
}
