// CUPOOL_MANY_BUDGET=unlimited: under many streams the pool grows rather than making them wait for each
// other.
#include <cstdlib>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {
const bool environment_is_set = setenv("CUPOOL_MANY_BUDGET", "unlimited", 1) == 0;
}  // namespace

TEST_CASE_METHOD(PoolWorld,
                 "with an unlimited budget neither a context nor the host waits for want of memory") {
  REQUIRE(environment_is_set);
  allocate(100 * kKiB);
  for (int i = 0; i < 100; ++i) {
    const auto address = allocate(100 * kKiB);
    work(kS);
    work(kT);
    work(kU);
    free(address);
  }
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}
