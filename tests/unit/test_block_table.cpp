// The records of dedicated blocks, alone: no driver, no timeline.
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "dedicated/block_table.hpp"

// The fixture holds the lock for a whole test, which clang's analysis does not follow.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif

using namespace cupool;
using namespace cupool::dedicated;

namespace {

constexpr Address kStart = 0x7e0000000000;

// Two contexts on two devices, and what a test puts there.
struct Tables {
  Holdings here{reinterpret_cast<driver::Context>(0x10), 0};
  Holdings there{reinterpret_cast<driver::Context>(0x20), 1};
  BlockTable table;
  Guard hold{table.lock()};

  Tables() {
    table.join(here);
    table.join(there);
  }
  Block& add(Address start, uint64_t bytes, Holdings& owner) {
    owner.reserved += bytes;
    return table.add(start, {.bytes = bytes, .asked = bytes, .owner = &owner});
  }
  Block& add(Address start, uint64_t bytes) { return add(start, bytes, here); }
  void free(Address start, Epoch stamp = 1) {
    Block& block = *table.starting_at(start);
    table.note_free(block, stamp);
    table.add_idle(start, block);
  }
  Address find_idle(uint64_t bytes, uint64_t most, Epoch limit = ~Epoch{0}) {
    const auto* const found =
        table.find_idle(here, bytes, most, [&](const Block& block) { return block.stamp <= limit; });
    return found == nullptr ? 0 : found->first;
  }
  Address oldest(const Scope& scope) {
    const auto* const found = table.oldest(scope, [](const Holdings&, const Block&) { return true; });
    return found == nullptr ? 0 : found->first;
  }
};

}  // namespace

TEST_CASE_METHOD(Tables, "an address leads to its block, and to a live one only within the requested bytes") {
  add(kStart, 2 * kMiB).asked = kMiB;
  REQUIRE(table.containing(kStart + 2 * kMiB - 1) != nullptr);
  CHECK(table.containing(kStart + 2 * kMiB - 1)->first == kStart);
  CHECK(table.containing(kStart + 2 * kMiB) == nullptr);
  CHECK(table.containing(kStart - 1) == nullptr);
  CHECK(table.live_at(kStart + kMiB - 1) != nullptr);
  CHECK(table.live_at(kStart + kMiB) == nullptr);
  CHECK(table.starting_at(kStart + 1) == nullptr);
  free(kStart);
  CHECK(table.live_at(kStart) == nullptr);
  CHECK(table.containing(kStart) != nullptr);
}

TEST_CASE_METHOD(Tables, "blocks that lie in a range of addresses only in part are in it") {
  for (Address i = 0; i < 4; ++i) add(kStart + i * kMiB, kMiB);
  std::vector<Address> seen;
  table.for_each_in(kStart + kMiB + 1, kMiB, [&](Address start, Block&) { seen.push_back(start); });
  CHECK(seen == std::vector<Address>{kStart + kMiB, kStart + 2 * kMiB});
  CHECK(table.first_in(kStart - kMiB, kMiB) == nullptr);
  REQUIRE(table.first_in(kStart - kMiB, kMiB + 1) != nullptr);
  CHECK(table.first_in(kStart - kMiB, kMiB + 1)->first == kStart);
}

TEST_CASE_METHOD(Tables, "of idle blocks that fit the smallest is found, of equals the oldest") {
  add(kStart, 3 * kMiB);
  add(kStart + 10 * kMiB, 2 * kMiB);
  add(kStart + 20 * kMiB, 2 * kMiB);
  free(kStart + 20 * kMiB);
  free(kStart + 10 * kMiB);
  free(kStart);
  CHECK(find_idle(kMiB, 4 * kMiB) == kStart + 20 * kMiB);
  CHECK(find_idle(2 * kMiB + 1, 4 * kMiB) == kStart);
  CHECK(find_idle(kMiB, 2 * kMiB - 1) == 0);
  CHECK(table.has_idle(here, kMiB, 2 * kMiB));
  CHECK_FALSE(table.has_idle(here, kMiB, 2 * kMiB - 1));
  CHECK_FALSE(table.has_idle(there, kMiB, 4 * kMiB));
}

TEST_CASE_METHOD(Tables, "a block that may not be handed out yet makes way for one of the next size") {
  add(kStart, 2 * kMiB);
  add(kStart + 10 * kMiB, 3 * kMiB);
  free(kStart, 7);
  free(kStart + 10 * kMiB, 5);
  CHECK(find_idle(kMiB, 4 * kMiB, 6) == kStart + 10 * kMiB);
  CHECK(find_idle(kMiB, 4 * kMiB, 4) == 0);
}

TEST_CASE_METHOD(Tables, "a tainted block is idle and goes back, but serves no request") {
  add(kStart, 2 * kMiB).mark.taints = 1;
  free(kStart);
  CHECK(table.idle_bytes({}) == 2 * kMiB);
  CHECK(oldest({}) == kStart);
  CHECK(find_idle(kMiB, 4 * kMiB) == 0);
}

TEST_CASE_METHOD(Tables, "a block that leaves, or is handed out, leaves every index") {
  add(kStart, 2 * kMiB);
  add(kStart + 10 * kMiB, 2 * kMiB);
  free(kStart);
  free(kStart + 10 * kMiB);
  CHECK(here.newcomers == 4 * kMiB);
  CHECK(table.remove(kStart).bytes == 2 * kMiB);
  CHECK(table.starting_at(kStart) == nullptr);
  CHECK(oldest({}) == kStart + 10 * kMiB);
  CHECK(table.idle_bytes({}) == 2 * kMiB);
  // The bytes on their way to the driver count as taken.
  CHECK(table.taken_bytes({}) == 2 * kMiB);
  table.hand_out(*table.containing(kStart + 10 * kMiB), kMiB);
  CHECK(table.live_at(kStart + 10 * kMiB) != nullptr);
  CHECK(oldest({}) == 0);
  CHECK(table.idle_bytes({}) == 0);
  CHECK(here.newcomers == 0);
  CHECK(find_idle(kMiB, 4 * kMiB) == 0);
}

TEST_CASE_METHOD(Tables,
                 "the oldest idle block is that of all contexts, of one device, or of those accepted") {
  add(kStart, kMiB, there);
  add(kStart + 10 * kMiB, kMiB);
  add(kStart + 20 * kMiB, kMiB);
  free(kStart);
  free(kStart + 10 * kMiB);
  free(kStart + 20 * kMiB);
  CHECK(oldest({}) == kStart);
  CHECK(oldest({.device = 0}) == kStart + 10 * kMiB);
  CHECK(oldest({.context = there.context}) == kStart);
  CHECK(oldest({.context = there.context, .device = 0}) == 0);
  const auto* const found =
      table.oldest({}, [&](const Holdings& owner, const Block&) { return &owner == &here; });
  REQUIRE(found != nullptr);
  CHECK(found->first == kStart + 10 * kMiB);
  // A block that the driver did not take is put behind the others.
  Block& refused = table.add(kStart, table.remove(kStart));
  table.renew(refused);
  table.add_idle(kStart, refused);
  CHECK(oldest({}) == kStart + 10 * kMiB);
}

TEST_CASE_METHOD(Tables, "a large request gains only the driver's steps on which no block lives") {
  // Two small blocks in one step; a large one that begins in the next.
  add(kStart, kMiB / 2);
  add(kStart + kMiB, kMiB / 2);
  add(kStart + kDriverStep, 3 * kMiB);
  free(kStart);
  CHECK(table.most_idle({}, 8 * kMiB, true) == 0);
  free(kStart + kDriverStep);
  CHECK(table.most_idle({}, 8 * kMiB, true) == 2 * kDriverStep);
  free(kStart + kMiB);
  CHECK(table.most_idle({}, 8 * kMiB, true) == 3 * kDriverStep);
  CHECK(table.most_idle({.device = 1}, 8 * kMiB, true) == 0);
  // Small blocks, and memory that is taken by the byte, may gain as much as each block's steps.
  CHECK(table.most_idle({}, kMiB, true) == here.idle + 3 * kDriverStep);
  CHECK(table.largest_idle({}) == 3 * kMiB);
}

TEST_CASE_METHOD(Tables, "what a release gains is right at any moment, though nobody looks at the blocks") {
  constexpr uint64_t kSlot = kMiB / 2;
  constexpr unsigned kSlots = 200;
  std::mt19937_64 random(1);
  // From the first step, by all blocks that lie on one, as the driver sees them.
  const auto gained = [&](const Holdings* owner) {
    uint64_t bytes = 0;
    for (Address step = kStart; step < kStart + kSlots * kSlot; step += kDriverStep) {
      bool any = false, all = true;
      table.for_each_in(step, kDriverStep, [&](Address, const Block& block) {
        any = true;
        all = all && block.is_idle() && (owner == nullptr || block.owner == owner);
      });
      if (any && all) bytes += kDriverStep;
    }
    return bytes;
  };
  uint64_t most = 0;
  for (int i = 0; i < 4000; ++i) {
    const Address at = kStart + random() % kSlots * kSlot;
    BlockTable::Entry* const found = table.containing(at);
    if (found == nullptr) {
      const uint64_t bytes = (1 + random() % 16) * kSlot - random() % 2 * 4096;
      Holdings& owner = random() % 3 == 0 ? there : here;
      if (at + bytes <= kStart + kSlots * kSlot && table.first_in(at, bytes) == nullptr)
        add(at, bytes, owner);
    } else if (!found->second.is_idle()) {
      free(found->first);
    } else if (random() % 3 == 0) {
      table.hand_out(*found, 1);
    } else {
      const Block block = table.remove(found->first);
      block.owner->reserved -= block.bytes;
    }
    // What lay on one step with another context's is said to be its alone when all has gone from there.
    REQUIRE(table.most_idle({.context = here.context}, 8 * kMiB, true) <= gained(&here));
    REQUIRE(table.most_idle({}, 8 * kMiB, true) == gained(nullptr));
    most = std::max(most, gained(nullptr));
  }
  CHECK(most > 10 * kMiB);
  table.for_each([&](Address start, Block& block) {
    if (!block.is_idle()) free(start);
  });
  CHECK(table.most_idle({}, 8 * kMiB, true) == gained(nullptr));
}

TEST_CASE_METHOD(Tables, "the age of an idle block is counted from when it became idle, not from its free") {
  Block& block = add(kStart, kMiB);
  table.note_free(block, 1);
  block.free_pending = true;
  // Long requests in vain while its free is pending.
  here.admission.note_miss(10 * here.admission.patience(), ~uint64_t{0});
  block.free_pending = false;
  table.add_idle(kStart, block);
  CHECK_FALSE(block.is_stale());
  here.admission.note_miss(here.admission.patience() + 1, ~uint64_t{0});
  CHECK(block.is_stale());
}

TEST_CASE_METHOD(Tables, "a context that left has no part in sums and searches") {
  add(kStart, kMiB, there);
  free(kStart);
  CHECK(table.starts_of(there) == std::vector<Address>{kStart});
  CHECK(table.starts_of(here).empty());
  table.remove(kStart);
  table.leave(there);
  CHECK(table.contexts({}) == std::vector<driver::Context>{here.context});
  CHECK(table.taken_bytes({}) == 0);
  CHECK(oldest({}) == 0);
}
