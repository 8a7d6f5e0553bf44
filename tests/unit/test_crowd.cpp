// A device that is nearly full: what lies free in pieces between blocks serves nobody who needs more.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "pool_world.hpp"

namespace {

using namespace cupool;

struct SmallDevice : test::FakeDriver {
  SmallDevice() { capacity = uint64_t{4} << 30; }
};

struct CrowdedWorld : test::BasicPoolWorld<SmallDevice> {
  CrowdedWorld() { driver.done_at_once = true; }

  // What the driver takes for a block by itself.
  static uint64_t alone(uint64_t bytes) {
    return bytes > kMiB ? (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB) : bytes;
  }

  // Replaces blocks at random, of sizes that are spread evenly over the octaves, as long as the driver would
  // have given each of them within `most`. How many are refused.
  int replace(unsigned seed, uint64_t least, uint64_t largest, uint64_t most, int rounds) {
    struct Block {
      driver::Address address;
      uint64_t bytes;
    };
    std::mt19937_64 random(seed);
    std::vector<Block> blocks;
    uint64_t live = 0;
    int refused = 0;
    for (int i = 0; i < rounds; ++i) {
      const double place = static_cast<double>(random() % 100'000) / 100'000;
      const double times = std::pow(static_cast<double>(largest) / static_cast<double>(least), place);
      const auto bytes = static_cast<uint64_t>(static_cast<double>(least) * times) & ~uint64_t{511};
      while (live + alone(bytes) > most) {
        Block& old = blocks[random() % blocks.size()];
        live -= alone(old.bytes);
        free(old.address);
        old = blocks.back();
        blocks.pop_back();
      }
      driver::Address address = 0;
      if (memory.allocate(context, bytes, &address) != driver::kSuccess) {
        ++refused;
        continue;
      }
      live += alone(bytes);
      blocks.push_back({address, bytes});
    }
    check_records();
    return refused;
  }
};

}  // namespace

TEST_CASE("blocks that are replaced at random on a device nine tenths full are hardly ever refused") {
  constexpr int kRounds = 3000;
  int refused = 0;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    refused += CrowdedWorld().replace(seed, kMiB, 64 * kMiB, uint64_t{3686} * kMiB, kRounds);
    refused += CrowdedWorld().replace(seed, 4 << 10, 64 * kMiB, uint64_t{3686} * kMiB, kRounds);
    refused += CrowdedWorld().replace(seed, 4 << 10, 128 * kMiB, uint64_t{3481} * kMiB, kRounds);
  }
  INFO(refused);
  CHECK(refused <= 12 * kRounds / 2000);
}

TEST_CASE_METHOD(CrowdedWorld,
                 "blocks that take turns beside much that stays are no new segments each time") {
  for (uint64_t live = 0; live < uint64_t{3500} * kMiB; live += 37 * kMiB) allocate(37 * kMiB);
  const uint64_t before = driver.allocations;
  for (uint64_t i = 0; i < 2000; ++i) free(allocate((20 + 9 * (i % 24)) * kMiB));
  CHECK(driver.allocations < before + 40);
}
