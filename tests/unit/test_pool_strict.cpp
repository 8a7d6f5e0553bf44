// CUPOOL_FREE=sync: a free waits as the driver's does, so memory is reused only when all work is over,
// whatever the lanes.
#include <cstdlib>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {
const bool environment_is_set = setenv("CUPOOL_FREE", "sync", 1) == 0;
}  // namespace

TEST_CASE_METHOD(PoolWorld,
                 "in strict mode every free waits for all work, and what it freed can be used at once") {
  REQUIRE(environment_is_set);
  for (const uint64_t bytes : {uint64_t{512}, 100 * kKiB, 30 * kMiB}) {
    const auto address = allocate(bytes);
    work(kS);
    work(kT);
    const uint64_t before = driver.synchronisations;
    const order::Epoch stamp = pools.order().open();
    free(address);
    CHECK(driver.synchronisations == before + 1);
    CHECK(pools.order().is_completed(stamp));
    work(kS);
    work(kT);
    const uint64_t calls = driver.calls();
    free(allocate(bytes));
    CHECK(driver.calls() == calls + 1);
  }
  CHECK(driver.records == 0);
}
