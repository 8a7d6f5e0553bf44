// CUPOOL_FREE=sync: a free waits as the driver's does, so memory is reused only when all work is over,
// whatever the lanes.
#include <cstdlib>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {
const bool environment_is_set = setenv("CUPOOL_FREE", "sync", 1) == 0;

struct HostVisible final : FakeSource {
  bool is_host_visible() const override { return true; }
};
struct ManagedSource {
  HostVisible managed;
};
struct DedicatedWorld : ManagedSource, PoolWorld {
  DedicatedWorld() { memory.use_dedicated_allocations(); }

  void expect_wait(driver::Address address) {
    work(kS);
    work(kT);
    const uint64_t before = driver.synchronisations;
    const order::Epoch stamp = time().open();
    free(address);
    CHECK(driver.synchronisations == before + 1);
    CHECK(time().completed() >= stamp);
  }
};

}  // namespace

TEST_CASE_METHOD(PoolWorld,
                 "in strict mode every free waits for all work, and what it freed can be used at once") {
  REQUIRE(environment_is_set);
  for (const uint64_t bytes : {uint64_t{512}, 100 * kKiB, 30 * kMiB}) {
    const auto address = allocate(bytes);
    work(kS);
    work(kT);
    const uint64_t before = driver.synchronisations;
    const order::Epoch stamp = time().open();
    free(address);
    CHECK(driver.synchronisations == before + 1);
    CHECK(time().completed() >= stamp);
    work(kS);
    work(kT);
    const uint64_t calls = driver.calls();
    free(allocate(bytes));
    CHECK(driver.calls() == calls + 1);
  }
  CHECK(driver.records == 0);
}

TEST_CASE_METHOD(DedicatedWorld,
                 "in strict mode a free of a dedicated block and of managed memory waits too") {
  expect_wait(allocate(5000));
  driver::Address address = 0;
  REQUIRE(memory.allocate_dedicated(context, managed, 5000, &address) == driver::kSuccess);
  expect_wait(address);
  // What the pool does not know is the driver's to wait for.
  const uint64_t before = driver.synchronisations;
  CHECK(memory.free(0x1234) == memory::Freed::kNotOurs);
  CHECK(driver.synchronisations == before);
}

TEST_CASE_METHOD(DedicatedWorld, "in strict mode a stream-ordered free of a dedicated block does not wait") {
  const auto address = allocate(5000);
  work(kS);
  const uint64_t before = driver.synchronisations;
  CHECK(memory.free_on(address, reinterpret_cast<driver::Stream>(kS), nullptr) == memory::Freed::kDone);
  CHECK(driver.synchronisations == before);
}
