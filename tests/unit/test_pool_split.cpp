// The largest range that may be split, and rounding that no tag can tell the slack of: settings that few use.
// They stand in the environment, which a process reads once.
#include <cstdlib>
#include <random>
#include <vector>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

const bool environment_is_set =
    setenv("CUPOOL_SPLIT_MAX", "32M", 1) == 0 && setenv("CUPOOL_LARGE_ROUND", "64K", 1) == 0;

}  // namespace

TEST_CASE_METHOD(PoolWorld,
                 "a limit on splitting bounds segments too, so that what is left of one serves again") {
  std::mt19937_64 random(1);
  std::vector<std::pair<driver::Address, uint64_t>> live;
  uint64_t bytes = 0;
  for (int i = 0; i < 100000; ++i) {
    if (random() % 100 < (bytes < 200 * kMiB ? 60 : 40)) {
      const uint64_t octave = uint64_t{512} << (random() % 15);
      const uint64_t size = octave + random() % octave;
      live.emplace_back(allocate(size), size);
      bytes += size;
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      free(live.back().first);
      bytes -= live.back().second;
      live.pop_back();
    }
  }
  CHECK(driver.peak < 600 * kMiB);
  check_records();
}

TEST_CASE_METHOD(PoolWorld, "with wide rounding a block still answers for the bytes that were asked for") {
  for (const uint64_t bytes : {kMiB - 1, 600 * kKiB, 64 * kKiB + 1, 33 * kKiB, 5 * kMiB + 3}) {
    for (int i = 0; i < 3; ++i) {
      const auto block = allocate(bytes);
      memory::BlockInfo held;
      REQUIRE(memory.find(block + bytes - 1, &held));
      CHECK(held.start == block);
      CHECK(held.bytes == bytes);
      CHECK_FALSE(memory.find(block + bytes, &held));
      free(block);
    }
  }
}
