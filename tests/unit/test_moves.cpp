// Mapped memory that moves: free chunks become part of a larger run before their work is done, and stay
// mapped where they were until it is.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "mapped_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

// Two free blocks that lie apart, whose work on one stream is sealed but not done.
struct Moves : MappedWorld {
  const driver::Address low = allocate(8 * kMiB);
  const driver::Address between = allocate(8 * kMiB);
  const driver::Address high = allocate(8 * kMiB);
  const driver::Address last = allocate(8 * kMiB);
  const uint64_t taken = driver.reserved;

  Moves() {
    work(kS);
    free(low);
    free(high);
    time().seal_in_free();
    REQUIRE(time().cheap() > time().completed());
  }
  // How many places chunks have beyond one each.
  size_t places() {
    std::set<driver::Chunk> chunks;
    for (const auto& [at, one] : mapping.mapped) chunks.insert(one.chunk);
    return mapping.mapped.size() - chunks.size();
  }
};

}  // namespace

TEST_CASE_METHOD(Moves, "free memory moves before its work is done, and stays where it was until then") {
  const driver::Address both = allocate(16 * kMiB);
  CHECK(driver.reserved == taken);
  CHECK(mapping.unmaps == 0);
  CHECK(places() > 0);
  CHECK(mapping.has_access(both, 16 * kMiB, 0));
  check_records();
  finish();
  pool().release_idle({});
  CHECK(places() == 0);
  CHECK(driver.reserved == taken);
  CHECK(mapping.has_access(both, 16 * kMiB, 0));
  check_records();
}

TEST_CASE_METHOD(Moves, "after a refusal memory moves once its work is done, and does not go back") {
  driver.capacity = taken;
  time().use_completed_only();
  driver.end_work_when_watched();
  allocate(16 * kMiB);
  CHECK(mapping.releases == 0);
  CHECK(driver.reserved == taken);
}

TEST_CASE_METHOD(Moves, "other streams wait for the old work of memory that has moved") {
  allocate(16 * kMiB);
  const uint64_t waits = driver.waits;
  work(kS);
  CHECK(driver.waits == waits);
  work(kT);
  CHECK(driver.waits == waits + 1);
}

TEST_CASE_METHOD(Moves, "memory that has moved goes back although it is mapped where it was, too") {
  free(allocate(16 * kMiB));
  CHECK(places() > 0);
  finish();
  memory.idle().trim(0);
  CHECK(driver.reserved == 16 * kMiB);
  CHECK(mapping.mapped.size() == mapping.creates - mapping.releases);
  free(between);
  free(last);
}

TEST_CASE_METHOD(Moves, "memory moves a second time, and all its places go") {
  const driver::Address both = allocate(16 * kMiB);
  free(both);
  free(between);
  time().seal_in_free();
  allocate(40 * kMiB);
  CHECK(driver.reserved == taken + 16 * kMiB);
  CHECK(mapping.unmaps == 0);
  check_records();
  finish();
  pool().release_idle({});
  CHECK(places() == 0);
}

// What was read before the first place went says nothing of memory that another thread moves meanwhile.
TEST_CASE_METHOD(Moves, "a place that is left while others are unmapped stays until its own work is done") {
  allocate(16 * kMiB);
  finish();
  REQUIRE(time().is_idle());
  std::set<driver::Address> under_work;
  mapping.on_unmap = [&](driver::Address start, uint64_t bytes) {
    for (const driver::Address one : under_work) CHECK((one < start || one >= start + bytes));
    if (!under_work.empty()) return;
    under_work = {between, last};
    std::thread([&] {
      work(kT);
      free(between);
      free(last);
      time().seal_in_free();
      allocate(16 * kMiB);
    }).join();
  };
  pool().release_idle({});
  CHECK(under_work.size() == 2);
  CHECK(places() > 0);
  mapping.on_unmap = [](driver::Address, uint64_t) {};
  finish();
  pool().release_idle({});
  CHECK(places() == 0);
}

TEST_CASE_METHOD(Moves, "a move that the driver refuses leaves all where it was") {
  driver.end_work_when_watched();
  driver::Status* const refusals[] = {&mapping.fail_map, &mapping.fail_allow, &mapping.fail_create};
  for (driver::Status* const refusal : refusals) {
    *refusal = driver::kOutOfMemory;
    driver::Address none = 0;
    CHECK(memory.allocate(context, 40 * kMiB, &none) == driver::kOutOfMemory);
    *refusal = driver::kSuccess;
    CHECK(places() == 0);
    CHECK(driver.reserved <= taken);
    CHECK(booked() == driver.reserved);
    check_records();
  }
  CHECK(mapping.has_access(allocate(40 * kMiB), 40 * kMiB, 0));
}

TEST_CASE_METHOD(Moves, "where a failed move cannot be undone nothing else is mapped") {
  driver.end_work_when_watched();
  mapping.fail_allow = mapping.fail_unmap = driver::kOutOfMemory;
  driver::Address none = 0;
  CHECK(memory.allocate(context, 16 * kMiB, &none) == driver::kOutOfMemory);
  mapping.fail_allow = mapping.fail_unmap = driver::kSuccess;
  CHECK(mapping.has_access(allocate(40 * kMiB), 40 * kMiB, 0));
  check_records();
}

TEST_CASE_METHOD(Moves, "a context that ends leaves no place of what has moved") {
  allocate(16 * kMiB);
  CHECK(places() > 0);
  memory.closed(context, memory.begin_end(context), true);
  CHECK(mapping.mapped.empty());
  CHECK(mapping.reserved.empty());
}

namespace {

// A program that asks for the same blocks in every round, in a pool that holds much else.
struct Rounds : MappedWorld {
  Rounds() {
    for (int i = 0; i < 32; ++i) allocate(32 * kMiB);
    round();
  }
  // Every other one of a row makes room for blocks twice as large.
  void round() {
    std::vector<driver::Address> row, twice;
    for (int i = 0; i < 8; ++i) row.push_back(allocate(8 * kMiB));
    for (int i = 0; i < 8; i += 2) free(row[i]);
    for (int i = 0; i < 2; ++i) twice.push_back(allocate(16 * kMiB));
    for (int i = 1; i < 8; i += 2) free(row[i]);
    for (const driver::Address block : twice) free(block);
  }
};

}  // namespace

TEST_CASE_METHOD(Rounds, "memory does not move round after round: the program gets a little more") {
  const uint64_t at_first = driver.reserved;
  for (int i = 0; i < 60; ++i) round();
  const uint64_t maps = mapping.maps;
  for (int i = 0; i < 20; ++i) round();
  CHECK(mapping.maps == maps);
  CHECK(driver.reserved > at_first);
  CHECK(driver.reserved <= at_first + at_first / 20);
}

TEST_CASE_METHOD(Rounds, "on a full device memory moves round after round, and nothing waits") {
  driver.capacity = driver.reserved;
  for (int i = 0; i < 60; ++i) round();
  const uint64_t maps = mapping.maps;
  for (int i = 0; i < 20; ++i) round();
  CHECK(mapping.maps > maps);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(Rounds, "a nearly full device is not asked for more") {
  driver.capacity = driver.reserved + 14 * kMiB;
  uint64_t asked = 0;
  mapping.on_create = [&] { ++asked; };
  for (int i = 0; i < 100; ++i) round();
  CHECK(asked == 0);
}

TEST_CASE_METHOD(Rounds, "where a user limits what is kept nothing comes to go back at once") {
  pool().tenancy().set_max_cached(64 * kMiB);
  const uint64_t creates = mapping.creates;
  for (int i = 0; i < 100; ++i) round();
  CHECK(mapping.creates == creates);
}

TEST_CASE_METHOD(Rounds, "if the driver cannot make more memory, what there is moves on") {
  mapping.fail_create = driver::kUnknown;
  for (int i = 0; i < 100; ++i) round();
  CHECK(pool().segments().can_move());
  CHECK(driver.allocations == 0);
}

TEST_CASE_METHOD(Rounds, "a thread that needs a move while another is given more gets no more, too") {
  int asked = 0;
  driver::Address other = 0;
  mapping.on_create = [&] {
    if (++asked == 1) std::thread([&] { memory.allocate(context, 16 * kMiB, &other); }).join();
  };
  for (int i = 0; asked == 0 && i < 100; ++i) round();
  CHECK(other != 0);
  // The chunks of one block.
  CHECK(asked == 8);
}

TEST_CASE_METHOD(MappedWorld, "where more would move than is recorded, new memory serves") {
  std::vector<driver::Address> kept;
  std::vector<driver::Address> freed;
  driver.capacity = uint64_t{32} << 30;
  for (int i = 0; i < 3000; ++i) (i % 2 == 0 ? kept : freed).push_back(allocate(3 * kMiB));
  work(kS);
  for (const driver::Address one : freed) free(one);
  time().seal_in_free();
  const uint64_t taken = driver.reserved;
  for (int i = 0; i < 30; ++i) kept.push_back(allocate(256 * kMiB));
  CHECK(mapping.unmaps == 0);
  CHECK(driver.reserved > taken);
  CHECK(driver.reserved < taken + 30 * 256 * kMiB);
  check_records();
  for (const driver::Address one : kept) free(one);
  finish();
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
  CHECK(mapping.mapped.empty());
}

// ---- At once.

namespace {

// May be told that work has ended while others record and ask.
class SharedDriver : public FakeDriver {
 public:
  driver::Status record(driver::Context context, driver::Event event) override {
    const std::lock_guard<std::mutex> hold(events_lock_);
    return FakeDriver::record(context, event);
  }
  driver::Status query(driver::Event event) override {
    const std::lock_guard<std::mutex> hold(events_lock_);
    return FakeDriver::query(event);
  }
  // What is mapped meanwhile is not counted.
  driver::Status memory(size_t* free, size_t* total) override {
    *free = *total = capacity;
    return driver::kSuccess;
  }
  driver::Status synchronize(driver::Context context) override {
    const std::lock_guard<std::mutex> hold(events_lock_);
    before_end();
    return FakeDriver::synchronize(context);
  }
  void finish() {
    const std::lock_guard<std::mutex> hold(events_lock_);
    before_end();
    FakeDriver::finish();
  }
  std::function<void()> before_end = [] {};

 private:
  std::mutex events_lock_;
};

// Every block is written until its free, and that work goes on until somebody says that all has ended.
class SharedMoves : public BasicPoolWorld<SharedDriver> {
 public:
  SharedMoves() {
    use_mapped();
    driver.capacity = uint64_t{1} << 30;
    driver.before_end = [this] {
      const std::lock_guard<std::mutex> hold(lock_);
      unfinished_.clear();
    };
    // Where somebody waits for it, it ends at last.
    driver.on_query = [this] {
      if (++queries_ % 50 != 0) return;
      driver.before_end();
      driver.FakeDriver::finish();
    };
    mapping.on_unmap = [this](driver::Address start, uint64_t bytes) {
      const std::lock_guard<std::mutex> hold(lock_);
      const auto next = unfinished_.lower_bound(start + bytes);
      if (next == unfinished_.begin()) return;
      if (std::prev(next)->first + std::prev(next)->second > start) under_work = true;
    };
  }

  std::atomic<bool> under_work = false;

  void run(unsigned seed) {
    const uint64_t sizes[] = {3 * kMiB, 9 * kMiB, 24 * kMiB, 70 * kMiB};
    const order::Lane lanes[] = {kS, kT, kU};
    std::mt19937 random(seed);
    std::vector<std::pair<driver::Address, uint64_t>> mine;
    for (int i = 0; i < 500; ++i) {
      driver::Address address = 0;
      const uint64_t bytes = sizes[random() % std::size(sizes)];
      if (random() % 2 == 0 && memory.allocate(context, bytes, &address) == driver::kSuccess)
        mine.emplace_back(address, bytes);
      if (random() % 2 == 0 && !mine.empty()) {
        const size_t at = random() % mine.size();
        const auto [block, size] = mine[at];
        mine.erase(mine.begin() + static_cast<long>(at));
        {
          const std::lock_guard<std::mutex> hold(lock_);
          uint64_t& unfinished = unfinished_[block];
          unfinished = std::max(unfinished, size);
        }
        const order::Lane lane = lanes[random() % (seed % 2 == 0 ? 1 : 3)];
        if (!time().before_submit(lane, stream(lane))) abort();
        time().after_submit(lane);
        memory.free(block);
      }
      if (random() % 8 == 0) driver.finish();
      if (random() % 16 == 0) pool().release_idle({});
      if (random() % 32 == 0) memory.idle().trim(0);
    }
    for (const auto& [block, size] : mine) memory.free(block);
  }

 private:
  std::mutex lock_;
  std::map<driver::Address, uint64_t> unfinished_;
  uint64_t queries_ = 0;  // under the driver's lock
};

}  // namespace

TEST_CASE_METHOD(SharedMoves, "threads that move, use and give back memory at once unmap none under work") {
  memory.free(allocate(3 * kMiB));
  for (unsigned round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) threads.emplace_back([this, seed = 8 * t + round] { run(seed); });
    for (std::thread& thread : threads) thread.join();
  }
  CHECK_FALSE(under_work);
  check_records();
  driver.finish();
  time().wait_for_all();
  memory.idle().trim(0);
  CHECK(driver.reserved == 0);
  CHECK(mapping.mapped.empty());
}
