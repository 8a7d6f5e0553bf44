// Marked and tainted blocks: what a life is called, and that memory somebody else may reach is never handed
// out again.
#include <set>
#include <vector>

#include "pool_world.hpp"
#include "stats/counters.hpp"

using namespace cupool;
using namespace cupool::test;
using memory::Freed;
using memory::Mark;
using memory::Taint;

namespace {

uint64_t life_of(memory::Memory& memory, driver::Address address) {
  uint64_t life = 0;
  REQUIRE(memory.with_mark(address, [&](const Mark& mark) { life = mark.life; }));
  return life;
}

const uint64_t kSizes[] = {1, 512, 20 * kKiB, 600 * kKiB, 8 * kMiB, 64 * kMiB};

}  // namespace

TEST_CASE_METHOD(PoolWorld, "every life of a block has a number of its own, the same everywhere in it") {
  std::set<uint64_t> seen;
  for (int round = 0; round < 3; ++round) {
    for (const uint64_t bytes : kSizes) {
      const auto address = allocate(bytes);
      const uint64_t life = life_of(memory, address);
      CHECK(seen.insert(life).second);
      CHECK(life_of(memory, address + bytes - 1) == life);
      CHECK(life_of(memory, address) == life);
      free(address);
      CHECK_FALSE(memory.with_mark(address, [](const Mark&) {}));
    }
  }
}

TEST_CASE_METHOD(PoolWorld, "a marked block is freed once, and its size is still what was asked for") {
  for (const uint64_t bytes : kSizes) {
    const auto address = allocate(bytes);
    life_of(memory, address);
    memory::BlockInfo held;
    REQUIRE(memory.find(address, &held));
    CHECK(held.bytes == bytes);
    CHECK(memory.free(address) == Freed::kDone);
    CHECK(memory.free(address) == Freed::kNotLive);
  }
  check_records();
}

namespace {

// Live blocks that are exported one after the other, beside other memory. What each may cost: the steps in
// which memory is taken. The first one takes its whole segment along.
void expect_small_losses(PoolWorld& world, uint64_t bytes) {
  constexpr int kBlocks = 200;
  constexpr uint64_t kStep = 2 * kMiB;
  world.allocate(512 * kMiB);
  world.allocate(bytes);
  const uint64_t before = world.reserved();
  for (int i = 0; i < kBlocks; ++i) REQUIRE(world.memory.taint(world.allocate(bytes), Taint::kExported));
  CHECK(world.reserved() - before <= kBlocks * round_up(bytes, kStep) + 64 * kMiB);
  world.check_records();
}

}  // namespace

TEST_CASE_METHOD(PoolWorld, "a program that exports block after block loses little memory with each") {
  expect_small_losses(*this, 4 * kKiB);
}

TEST_CASE_METHOD(PoolWorld, "nor much with larger blocks") { expect_small_losses(*this, 3 * kMiB / 2); }

TEST_CASE_METHOD(PoolWorld, "nor much of mapped memory") {
  use_mapped();
  expect_small_losses(*this, 4 * kKiB);
}

TEST_CASE_METHOD(PoolWorld, "no new block is cut from a segment with a tainted block") {
  for (const uint64_t bytes : kSizes) {
    const auto address = allocate(bytes);
    const auto neighbour = allocate(bytes);
    memory::BlockInfo held;
    REQUIRE(memory.find(address, &held));
    REQUIRE(memory.taint(address, Taint::kExported));
    free(neighbour);
    driver.finish();
    for (int i = 0; i < 200; ++i) {
      memory::BlockInfo other;
      REQUIRE(memory.find(allocate(bytes), &other));
      REQUIRE(other.segment != held.segment);
    }
    memory.close(context);
  }
}

TEST_CASE_METHOD(PoolWorld, "a full slab of a tainted segment hands out no block freed in it") {
  std::vector<driver::Address> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(allocate(512));
  memory::BlockInfo held;
  REQUIRE(memory.find(blocks[0], &held));
  REQUIRE(memory.taint(blocks[0], Taint::kExported));
  for (size_t i = 1; i < blocks.size(); ++i) free(blocks[i]);
  driver.finish();
  for (int i = 0; i < 1000; ++i) {
    memory::BlockInfo other;
    REQUIRE(memory.find(allocate(512), &other));
    REQUIRE(other.segment != held.segment);
  }
}

TEST_CASE_METHOD(PoolWorld, "a tainted segment goes back to the driver with its last block, not before") {
  const auto first = allocate(kMiB);
  const auto second = allocate(kMiB);
  const auto small = allocate(100);
  REQUIRE(memory.taint(first, Taint::kSyncMemops));
  REQUIRE(memory.taint(small, Taint::kSyncMemops));
  free(first);
  CHECK(driver.releases == 0);
  CHECK(memory.owns(first));
  free(second);
  free(small);
  CHECK(driver.releases == driver.allocations);
  CHECK_FALSE(memory.owns(first));
  CHECK(driver.reserved == 0);
}

TEST_CASE_METHOD(PoolWorld, "during a capture a tainted segment stays until the next free") {
  const auto address = allocate(30 * kMiB);
  REQUIRE(memory.taint(address, Taint::kDmaBuf));
  memory.order().gate().begin_capture();
  free(address);
  CHECK(driver.releases == 0);
  memory.order().gate().end_capture();
  memory.idle().release_everything();
  CHECK(driver.releases == 1);
}

TEST_CASE_METHOD(PoolWorld,
                 "tainted memory is not counted as free, and is as much as it was when it went back") {
  allocate(64 * kMiB);
  const auto address = allocate(3 * kMiB / 2);
  const auto other = allocate(3 * kMiB / 2);
  free(other);
  REQUIRE(pool().ranges().bytes().free() > 0);
  REQUIRE(memory.taint(address, Taint::kPeerTokens));
  CHECK(pool().ranges().bytes().free() == 0);
  free(address);
  CHECK(pool().ranges().bytes().reserved() == 64 * kMiB);
  CHECK(pool().ranges().bytes().free() == 0);
  allocate(3 * kMiB);
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "each reason is counted once for a block") {
  const uint64_t before = stats::sums().tainted_by_export;
  const auto address = allocate(1000);
  CHECK(memory.taint(address, Taint::kExported));
  CHECK(memory.taint(address + 5, Taint::kExported));
  CHECK(stats::sums().tainted_by_export == before + 1);
  CHECK_FALSE(memory.taint(address + 1000, Taint::kExported));
  CHECK_FALSE(memory.taint(0x1234, Taint::kExported));
}
