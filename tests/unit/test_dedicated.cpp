// Memory that is never cut: managed memory, and all of it with CUPOOL_SPLIT=0.
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "order/submission_gate.hpp"
#include "other_thread.hpp"
#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;
using memory::Freed;

namespace {

struct HostVisible final : FakeSource {
  bool is_host_visible() const override { return true; }
};

// A base before the world: the world's end still asks it about the blocks it gave.
struct ManagedSource {
  HostVisible managed;
};

struct DedicatedWorld : ManagedSource, PoolWorld {
  DedicatedWorld() { memory.use_dedicated_allocations(); }
  driver::Address allocate_managed(uint64_t bytes) {
    driver::Address address = 0;
    REQUIRE(memory.allocate_dedicated(context, managed, bytes, &address) == driver::kSuccess);
    return address;
  }
};

}  // namespace

TEST_CASE_METHOD(DedicatedWorld,
                 "a dedicated block is one allocation of the driver, and comes back for its own size only") {
  const auto address = allocate(5000);
  CHECK(driver.allocations == 1);
  work(kS);
  free(address);
  CHECK(allocate(5000) == address);
  CHECK(driver.allocations == 1);
  free(address);
  CHECK(allocate(5001) != address);
  CHECK(driver.allocations == 2);
  CHECK(driver.releases == 0);
}

TEST_CASE_METHOD(DedicatedWorld, "a dedicated block answers like any other") {
  const auto address = allocate(5000);
  memory::BlockInfo held;
  REQUIRE(memory.find(address + 4999, &held));
  CHECK(held.start == address);
  CHECK(held.bytes == 5000);
  CHECK(held.dedicated);
  CHECK_FALSE(memory.find(address + 5000, &held));
  CHECK(memory.free(address + 1) == Freed::kNotLive);
  CHECK(memory.free(address) == Freed::kDone);
  CHECK(memory.free(address) == Freed::kNotLive);
  CHECK_FALSE(memory.find(address, &held));
}

TEST_CASE_METHOD(DedicatedWorld, "managed memory is reused only when all work on it is over") {
  const auto address = allocate_managed(kMiB);
  work(kS);
  const auto stamp = time().open();
  free(address);
  // A seal and one lane are enough for the device, never for the host.
  REQUIRE(time().cheap() >= stamp);
  const auto other = allocate_managed(kMiB);
  CHECK(other != address);
  // Nor does the allocation wait for it.
  CHECK(driver.synchronisations == 0);
  driver.finish();
  CHECK(allocate_managed(kMiB) == address);
}

namespace {

// Blocks that are freed one after the other while work is under way, which ends only when somebody has asked
// so often that he must be waiting for it.
struct PatientDedicated : DedicatedWorld {
  static constexpr uint64_t kBlock = 128 * kMiB;
  static constexpr uint64_t kWithinBudget = 5;  // so many blocks: a hundredth of the capacity
  std::vector<driver::Address> blocks;
  uint64_t waited = 0;

  PatientDedicated() {
    driver.capacity = managed.capacity = 64 * kGiB;
    driver.on_query = [this, asked = 0]() mutable {
      if (++asked % 50 != 0) return;
      ++waited;
      driver.finish();
    };
  }
  void free_next() {
    work(kS);
    free(blocks.back());
    blocks.pop_back();
  }
};

}  // namespace

TEST_CASE_METHOD(PatientDedicated, "a free of managed memory waits once more than the budget lies idle") {
  for (uint64_t i = 0; i <= kWithinBudget; ++i) blocks.push_back(allocate_managed(kBlock));
  for (uint64_t i = 0; i < kWithinBudget; ++i) free_next();
  CHECK(waited == 0);
  CHECK_FALSE(time().is_idle());
  free_next();
  CHECK(waited == 1);
  CHECK(time().is_idle());
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(PatientDedicated,
                 "a free of a dedicated block waits above the budget only where reuse is exact") {
  const bool is_exact = GENERATE(true, false);
  if (is_exact) memory.order().use_completed_only("a test");
  for (uint64_t i = 0; i <= kWithinBudget; ++i) blocks.push_back(allocate(kBlock));
  for (uint64_t i = 0; i < kWithinBudget; ++i) free_next();
  CHECK(waited == 0);
  free_next();
  CHECK(waited == (is_exact ? 1 : 0));
  CHECK(time().is_idle() == is_exact);
}

TEST_CASE_METHOD(PatientDedicated,
                 "where reuse is exact an allocation of a dedicated block waits for nothing") {
  memory.order().use_completed_only("a test");
  for (uint64_t i = 0; i < kWithinBudget; ++i) blocks.push_back(allocate(kBlock));
  const auto last = blocks.front();
  while (!blocks.empty()) free_next();
  CHECK(allocate(kBlock) != last);
  CHECK(waited == 0);
  CHECK(driver.releases == 0);
  work(kT);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(PatientDedicated, "a free of managed memory in a stream's order waits for nothing") {
  for (uint64_t i = 0; i < 2 * kWithinBudget; ++i) blocks.push_back(allocate_managed(kBlock));
  for (const auto block : blocks) {
    work(kS);
    CHECK(memory.free_on(block, reinterpret_cast<driver::Stream>(kS), nullptr) == Freed::kDone);
  }
  CHECK(waited == 0);
}

TEST_CASE_METHOD(DedicatedWorld,
                 "a dedicated block is sealed when it is freed, and another stream then waits for it") {
  const auto address = allocate(kMiB);
  work(kS);
  free(address);
  CHECK(driver.records == 1);
  CHECK(allocate(kMiB) == address);
  work(kS);
  CHECK(driver.waits == 0);
  work(kT);
  CHECK(driver.waits == 1);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(DedicatedWorld, "a dedicated block that was freed in a stream's order is not leaned on") {
  const auto address = allocate(kMiB);
  work(kS);
  CHECK(memory.free_on(address, reinterpret_cast<driver::Stream>(kS), nullptr) == Freed::kDone);
  CHECK(allocate(kMiB) != address);
  driver.finish();
  CHECK(allocate(kMiB) == address);
  work(kT);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(DedicatedWorld, "a tainted dedicated block goes back to the driver when it is freed") {
  const auto address = allocate_managed(kMiB);
  REQUIRE(memory.taint(address + 10, memory::Taint::kAdvised));
  free(address);
  CHECK(managed.releases == 1);
  CHECK_FALSE(memory.owns(address));
}

TEST_CASE_METHOD(DedicatedWorld,
                 "a tainted dedicated block freed during a capture waits, and is not reused") {
  allocate_managed(64 * kMiB);  // beside which the other may lie idle
  const auto address = allocate_managed(kMiB);
  REQUIRE(memory.taint(address, memory::Taint::kAdvised));
  memory.order().gate().begin_capture();
  free(address);
  CHECK(managed.releases == 0);
  CHECK(memory.free(address) == memory::Freed::kNotLive);
  memory.order().gate().end_capture();
  CHECK(allocate_managed(kMiB) != address);
  CHECK(memory.idle().trim(0) == kMiB);
  CHECK(managed.releases == 1);
  CHECK_FALSE(memory.owns(address));
}

TEST_CASE_METHOD(DedicatedWorld, "advice on a range marks every block in it") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocate_managed(2 * kMiB));
  REQUIRE(blocks[2] == blocks[0] + 4 * kMiB);
  REQUIRE(memory.taint(blocks[0] + kMiB, memory::Taint::kAdvised, 3 * kMiB));
  for (const auto block : blocks) free(block);
  CHECK(managed.releases == 2);
}

TEST_CASE_METHOD(DedicatedWorld, "idle dedicated blocks go back when memory is needed, and count as free") {
  const auto address = allocate(100 * kMiB);
  free(address);
  CHECK(memory.idle().releasable_bytes(0) == 100 * kMiB);
  CHECK(memory.idle().release_everything() == 100 * kMiB);
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(DedicatedWorld, "little managed memory stays idle while a program queries free memory") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate_managed(32 * kMiB));
  for (const auto block : blocks) free(block);
  memory.idle().release_managed(context);
  CHECK(managed.reserved == 64 * kMiB);
}

TEST_CASE_METHOD(DedicatedWorld, "a query of free memory does not wait for work under way") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate_managed(32 * kMiB));
  for (const auto block : blocks) free(block);
  work(kS);
  memory.idle().release_managed(context);
  CHECK(managed.releases == 0);
  CHECK(driver.synchronisations == 0);
  time().wait_for_all();
  memory.idle().release_managed(context);
  CHECK(managed.reserved == 64 * kMiB);
}

TEST_CASE_METHOD(DedicatedWorld,
                 "a query of free memory does not wait for work that another thread submits meanwhile") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate_managed(32 * kMiB));
  for (const auto block : blocks) free(block);
  std::thread([&] { const order::SubmissionGate::Pass prepared; }).join();
  const order::SubmissionGate::Pass submitting;
  memory.idle().release_managed(context);
  CHECK(managed.releases == 0);
}

TEST_CASE_METHOD(DedicatedWorld, "the dedicated blocks of a context end with it") {
  const auto address = allocate(1000);
  const auto idle = allocate(2000);
  free(idle);
  memory.close(context);
  CHECK_FALSE(memory.owns(address));
  CHECK(memory.free(address) == Freed::kNotOurs);
  CHECK(driver.releases == 0);
}

TEST_CASE_METHOD(DedicatedWorld, "memory that ended with its context no longer counts as reserved or live") {
  const auto before = stats::device(0).read();
  allocate(3000);
  free(allocate(2000));
  CHECK(stats::device(0).read().live_bytes == before.live_bytes + 3000);
  CHECK(stats::device(0).read().reserved_bytes == before.reserved_bytes + 5000);
  memory.close(context);
  const auto after = stats::device(0).read();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.asked_bytes == before.asked_bytes);
  CHECK(after.reserved_bytes == before.reserved_bytes);
  CHECK(after.frees == before.frees + 1);
}

TEST_CASE_METHOD(DedicatedWorld, "a new driver allocation replaces the record of an old one at its address") {
  allocate(128 * kMiB);  // beside which the others may lie idle
  const auto idle = allocate(kMiB);
  const auto held = allocate(kMiB);
  REQUIRE(held == idle + 2 * kMiB);
  free(idle);
  // The driver took both back without a word to us, and gives their addresses for one block.
  REQUIRE(driver.release(idle) == driver::kSuccess);
  REQUIRE(driver.release(held) == driver::kSuccess);
  const auto both = allocate(4 * kMiB);
  REQUIRE(both == idle);
  memory::BlockInfo found;
  for (const uint64_t inside : {kMiB / 2, 2 * kMiB, 3 * kMiB, 4 * kMiB - 1}) {
    REQUIRE(memory.find(both + inside, &found));
    CHECK(found.start == both);
    CHECK(found.bytes == 4 * kMiB);
  }
  CHECK(allocate(kMiB) != idle);
  CHECK(memory.free(held) == Freed::kNotLive);
  free(both);
  CHECK(memory.idle().releasable_bytes(0) == 4 * kMiB);
}

TEST_CASE_METHOD(DedicatedWorld, "a block whose release the driver refuses is kept, and given back later") {
  allocate(128 * kMiB);  // beside which the other may lie idle
  const auto reserved = stats::device(0).read().reserved_bytes;
  const auto address = allocate(5 * kMiB);
  free(address);
  driver.fail_release = 999;
  CHECK(memory.idle().release_everything() == 0);
  CHECK(memory.owns(address));
  CHECK(stats::device(0).read().reserved_bytes == reserved + 5 * kMiB);
  CHECK(memory.idle().releasable_bytes(0) == 6 * kMiB);  // the driver gains by whole steps
  CHECK(allocate(5 * kMiB) == address);
  REQUIRE(memory.taint(address, memory::Taint::kAdvised));
  free(address);
  CHECK(memory.owns(address));
  driver.fail_release = driver::kSuccess;
  // Nobody gets what is tainted.
  CHECK(allocate(5 * kMiB) != address);
  CHECK(memory.idle().release_everything() == 5 * kMiB);
  CHECK_FALSE(memory.owns(address));
}

TEST_CASE_METHOD(DedicatedWorld, "managed memory of sizes that never come again is held as the driver does") {
  const bool has_work = GENERATE(true, false);
  uint64_t most = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t bytes = 4 * kMiB + i * 300 * kKiB;
    const auto address = allocate_managed(bytes);
    most = std::max(most, bytes);
    // The first free does not wait, so the second request may come before the work on the first is done.
    const uint64_t held = round_up(most, FakeSource::kStep) + most / 16;
    if (i != 1 || !has_work) CHECK(managed.reserved <= held);
    if (has_work) work(kS);
    free(address);
  }
}

TEST_CASE_METHOD(DedicatedWorld,
                 "a program that goes on to managed blocks of other sizes holds no more than before") {
  std::vector<driver::Address> blocks;
  for (uint64_t phase = 1; phase <= 4; ++phase) {
    uint64_t allocations = 0;
    for (int round = 0; round < 5; ++round) {
      for (uint64_t i = 0; i < 24 / phase; ++i) {
        const uint64_t bytes = phase * 2 * kMiB;
        blocks.push_back(allocate_managed(bytes));
        work(kS);
      }
      CHECK(managed.reserved <= 51 * kMiB);
      for (const auto block : blocks) free(block);
      blocks.clear();
      // What has come again stays.
      if (round == 1) allocations = managed.allocations;
      driver.finish();
    }
    CHECK(managed.allocations == allocations);
  }
}

TEST_CASE_METHOD(DedicatedWorld, "a block that the driver refuses to take does not hold up the others") {
  const auto address = allocate(5 * kMiB);
  const auto other = allocate(7 * kMiB);
  free(address);
  free(other);
  // Gone behind our back: the driver does not know the older one any more.
  REQUIRE(driver.release(address) == driver::kSuccess);
  CHECK(memory.idle().release_everything() == 7 * kMiB);
  CHECK(memory.owns(address));
  CHECK_FALSE(memory.owns(other));
}

namespace {

// While one thread gives memory back another ends the context, and the driver then refuses.
struct EndingDriver final : FakeDriver {
  std::function<void()> meanwhile;
  driver::Status release_in(driver::Context context, driver::Address start) override {
    if (!meanwhile) return FakeDriver::release_in(context, start);
    other.emplace(std::exchange(meanwhile, nullptr));
    other->stands();
    return driver::kInvalidContext;
  }
  std::optional<OtherThread> other;
};

}  // namespace

TEST_CASE_METHOD(BasicPoolWorld<EndingDriver>,
                 "memory that was on its way back when its context ended serves no other context") {
  if (GENERATE(false, true)) memory.use_dedicated_allocations();
  free(allocate(64 * kMiB));
  driver.meanwhile = [this] { memory.close(context); };
  CHECK(memory.idle().release_everything() == 0);
  REQUIRE(driver.other);
  driver.other->join();
  CHECK(memory.idle().releasable_bytes(0) == 0);
  allocate(64 * kMiB);
  CHECK(driver.allocations == 2);
}

TEST_CASE_METHOD(DedicatedWorld, "what lies in a context that has failed does not hold up the others") {
  const auto another = reinterpret_cast<driver::Context>(0x20);
  driver::Address lost = 0;
  REQUIRE(memory.allocate(another, 10 * kMiB, &lost) == driver::kSuccess);
  free(lost);
  free(allocate(20 * kMiB));
  memory.fail(another);
  driver.capacity = driver.reserved;
  // Only the block of the context that still works can make room.
  allocate(18 * kMiB);
  CHECK(driver.releases == 1);
  memory.idle().trim(0);
  memory.close(another);
}

namespace {

// Refuses every release, for a while, and does something in one of them.
struct RefusingDriver final : FakeDriver {
  int refusals = 0;
  std::function<void()> in_second = [] {};
  driver::Status release_in(driver::Context context, driver::Address start) override {
    if (++refusals > 100) return FakeDriver::release_in(context, start);
    if (refusals == 2) in_second();
    return driver::kInvalidContext;
  }
};

}  // namespace

TEST_CASE_METHOD(BasicPoolWorld<RefusingDriver>,
                 "each block is tried once where the driver takes none, whatever other threads take") {
  memory.use_dedicated_allocations();
  const auto first = allocate(5 * kMiB);
  const auto second = allocate(7 * kMiB);
  free(first);
  free(second);
  // The one that was refused first is in use again when its turn would come.
  driver.in_second = [&] { CHECK(allocate(5 * kMiB) == first); };
  CHECK(memory.idle().release_everything() == 0);
  CHECK(driver.refusals == 2);
}
