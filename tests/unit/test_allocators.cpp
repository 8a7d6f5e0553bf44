// What every allocator promises, whichever way it gets its memory: cut segments, of the driver's or mapped,
// dedicated blocks, managed memory, the driver's own pool. One suite over all of them, through the front
// that programs come by.
#include <stdlib.h>

#include <map>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "fake_native_driver.hpp"
#include "pool_world.hpp"
#include "upstream/limit.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

constexpr uint64_t kLimit = 512 * kMiB;
constexpr uint64_t kDecayMs = 2;
const bool environment_is_set = setenv("CUPOOL_LIMIT", "512M", 1) == 0 &&
                                setenv("CUPOOL_DECAY_MS", "2", 1) == 0 &&
                                setenv("CUPOOL_LOG", "quiet", 1) == 0;

struct HostVisible final : FakeSource {
  bool is_host_visible() const override { return true; }
};

// Bases before the world: its end still asks them about the blocks they gave.
struct Drivers {
  HostVisible managed;
  FakeNativeDriver native_driver;
};

// A process in which one allocator serves. Two contexts, on one device.
struct World : Drivers, PoolWorld {
  driver::Context another = reinterpret_cast<driver::Context>(0x20);
  const uint64_t booked_before = upstream::Limit::booked(0);

  World() { REQUIRE(environment_is_set); }
  ~World() {
    memory.close(context);
    memory.close(another);
    memory.use_native(nullptr, memory::Memory::NativeUse::kLast);
  }
  uint64_t booked() const { return upstream::Limit::booked(0) - booked_before; }
  void use_native(memory::Memory::NativeUse use) {
    memory.use_native(
        new native::NativePool(driver, driver, native_driver, memory.order(), memory.in_flight()), use);
  }
};

struct Cut : World {
  static constexpr bool kLimited = true, kKeeps = true, kAnswers = true;
  driver::Status ask(driver::Context where, uint64_t bytes, driver::Address* out) {
    return memory.allocate(where, bytes, out);
  }
  void refuse(bool refuses) { driver.capacity = refuses ? driver.reserved : uint64_t{1} << 40; }
};

struct Dedicated : Cut {
  Dedicated() { memory.use_dedicated_allocations(); }
};

struct Mapped : Cut {
  Mapped() { use_mapped(); }
};

struct Managed : World {
  static constexpr bool kLimited = false, kKeeps = true, kAnswers = true;
  driver::Status ask(driver::Context where, uint64_t bytes, driver::Address* out) {
    return memory.allocate_dedicated(where, managed, bytes, out);
  }
  void refuse(bool refuses) { managed.capacity = refuses ? managed.reserved : uint64_t{1} << 40; }
};

// Freed memory is the driver's to keep and to answer for.
struct Native : World {
  static constexpr bool kLimited = true, kKeeps = false, kAnswers = false;
  Native() { use_native(memory::Memory::NativeUse::kFirst); }
  driver::Status ask(driver::Context where, uint64_t bytes, driver::Address* out) {
    return memory.allocate(where, bytes, out);
  }
  void refuse(bool refuses) {
    native_driver.on_allocate = [refuses] { return refuses ? driver::kOutOfMemory : driver::kSuccess; };
  }
};

template <typename World>
driver::Address get(World& world, uint64_t bytes) {
  driver::Address address = 0;
  REQUIRE(world.ask(world.context, bytes, &address) == driver::kSuccess);
  return address;
}

// What the drivers have given out, and not got back.
uint64_t taken(const World& world) {
  return world.driver.reserved + world.managed.reserved + world.native_driver.blocks.size();
}

}  // namespace

#define EVERY_ALLOCATOR Cut, Mapped, Dedicated, Managed, Native

TEMPLATE_TEST_CASE("no allocator takes more of a device than CUPOOL_LIMIT", "", EVERY_ALLOCATOR) {
  TestType world;
  constexpr uint64_t kBlock = 100 * kMiB;
  driver::Address address = 0;
  for (int i = 0; i < 5; ++i) get(world, kBlock);
  CHECK((world.ask(world.context, kBlock, &address) == driver::kSuccess) == !TestType::kLimited);
  CHECK(world.booked() <= kLimit);
}

TEMPLATE_TEST_CASE("two contexts of a device together keep CUPOOL_LIMIT", "", EVERY_ALLOCATOR) {
  TestType world;
  driver::Address address = 0;
  get(world, 300 * kMiB);
  CHECK((world.ask(world.another, 300 * kMiB, &address) == driver::kSuccess) == !TestType::kLimited);
  CHECK(world.ask(world.another, 200 * kMiB, &address) == driver::kSuccess);
}

TEST_CASE("cut memory and the driver's pool that helps out together keep CUPOOL_LIMIT, in all contexts") {
  Cut world;
  world.use_native(memory::Memory::NativeUse::kLast);
  driver::Address address = 0;
  get(world, 200 * kMiB);
  // The device is full, so the driver's pool serves both.
  world.refuse(true);
  CHECK(world.ask(world.context, 200 * kMiB, &address) == driver::kSuccess);
  CHECK(world.native_driver.blocks.size() == 1);
  CHECK(world.ask(world.another, 200 * kMiB, &address) == driver::kOutOfMemory);
  CHECK(world.ask(world.another, 100 * kMiB, &address) == driver::kSuccess);
  CHECK(world.booked() <= kLimit);
}

TEMPLATE_TEST_CASE("freed memory does not count against CUPOOL_LIMIT when an allocation needs it", "",
                   EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address block = get(world, 400 * kMiB);
  world.free(block);
  get(world, 450 * kMiB);
  CHECK(world.booked() <= kLimit);
}

TEMPLATE_TEST_CASE("the driver's refusal is passed to the program and leaves nothing behind", "",
                   EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address block = get(world, 10 * kMiB);
  const uint64_t booked = world.booked();
  world.refuse(true);
  driver::Address address = 0;
  CHECK(world.ask(world.context, 100 * kMiB, &address) == driver::kOutOfMemory);
  CHECK(world.booked() == booked);
  world.refuse(false);
  get(world, 100 * kMiB);
  world.free(block);
}

TEMPLATE_TEST_CASE("every live block is told once, with its size, and no freed one", "", EVERY_ALLOCATOR) {
  TestType world;
  std::map<driver::Address, uint64_t> expected;
  std::vector<driver::Address> freed;
  for (uint64_t i = 1; i < 40; ++i) {
    const uint64_t bytes = i % 3 == 0 ? i * kMiB : i * 300;
    const driver::Address block = get(world, bytes);
    if (i % 4 == 0) {
      freed.push_back(block);
    } else {
      expected[block] = bytes;
    }
  }
  for (const driver::Address block : freed) world.free(block);
  std::map<driver::Address, uint64_t> told;
  size_t times = 0;
  world.memory.for_each_allocator([&](auto& one) {
    static_cast<allocator::Allocator&>(one).for_each_live([&](const allocator::BlockInfo& block) {
      ++times;
      told[block.start] = block.bytes;
      CHECK(block.given >= block.bytes);
      CHECK(block.context == world.context);
    });
  });
  CHECK(told == expected);
  CHECK(times == expected.size());
}

TEMPLATE_TEST_CASE("trim gives all idle memory back to the driver", "", EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address block = get(world, 10 * kMiB);
  CHECK(taken(world) != 0);
  world.free(block);
  world.memory.idle().trim(0);
  CHECK(taken(world) == 0);
  CHECK(world.booked() == 0);
}

TEMPLATE_TEST_CASE("memory idle for CUPOOL_DECAY_MS goes back when the program waits", "", EVERY_ALLOCATOR) {
  TestType world;
  world.free(get(world, 10 * kMiB));
  if (TestType::kKeeps) CHECK(taken(world) != 0);
  // The first look notes since when a segment is idle.
  for (int look = 0; look < 2; ++look) {
    const uint64_t begin = now_ns();
    while (now_ns() - begin < 2 * kDecayMs * 1'000'000) std::this_thread::yield();
    world.memory.idle().decay();
  }
  CHECK(taken(world) == 0);
}

TEST_CASE("the native pool's memory is not idle before its first free") {
  Native world;
  const driver::Address block = get(world, 10 * kMiB);
  world.native_driver.idle_bytes = 10 * kMiB;
  const allocator::Idle for_ages{.for_ms = now_ns() / 1'000'000 - 1};
  world.memory.native()->release_idle(for_ages);
  world.free(block);
  world.memory.native()->release_idle(for_ages);
  CHECK(world.native_driver.trims == 0);
}

TEMPLATE_TEST_CASE("nothing goes back to the driver while a stream captures", "", EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address kept = get(world, 10 * kMiB);
  const driver::Address freed = get(world, 10 * kMiB);
  if (TestType::kKeeps) world.free(freed);
  const uint64_t before = taken(world);
  world.memory.order().gate().begin_capture();
  CHECK(world.memory.idle().trim(0) == 0);
  CHECK(world.memory.idle().release_everything() == 0);
  world.free(kept);
  CHECK(taken(world) == before);
  world.memory.order().gate().end_capture();
  if (!TestType::kKeeps) world.free(freed);
  world.memory.idle().trim(0);
  CHECK(taken(world) == 0);
}

TEMPLATE_TEST_CASE("the memory of a context ends with it", "", EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address held = get(world, 10 * kMiB);
  const driver::Address idle = get(world, 20 * kMiB);
  world.free(idle);
  world.memory.close(world.context);
  memory::BlockInfo found;
  CHECK_FALSE(world.memory.owns(held));
  CHECK_FALSE(world.memory.find(held, &found));
  CHECK(world.memory.free(held) == memory::Freed::kNotOurs);
  CHECK(world.booked() == 0);
  // The same handle is another context.
  get(world, 10 * kMiB);
}

TEMPLATE_TEST_CASE("while a context ends the driver serves its allocations", "", EVERY_ALLOCATOR) {
  TestType world;
  get(world, 10 * kMiB);
  const uint64_t ending = world.memory.begin_end(world.context);
  const driver::Address block = get(world, 10 * kMiB);
  CHECK_FALSE(world.memory.owns(block));
  CHECK(world.memory.free(block) == memory::Freed::kNotOurs);
  world.memory.closed(world.context, ending, true);
}

TEMPLATE_TEST_CASE("a fork child holds nothing, and has the whole limit to itself", "", EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address block = get(world, 400 * kMiB);
  world.memory.forget_after_fork();
  CHECK_FALSE(world.memory.owns(block));
  CHECK(upstream::Limit::booked(0) == 0);
}

TEMPLATE_TEST_CASE("memory freed by a thread that has ended can be given back", "", EVERY_ALLOCATOR) {
  TestType world;
  std::thread([&] {
    std::vector<driver::Address> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(get(world, 64 * kKiB));
    for (const driver::Address block : blocks) world.free(block);
  }).join();
  world.memory.idle().trim(0);
  CHECK(taken(world) == 0);
}

TEMPLATE_TEST_CASE("a block is found by every address in it, and a double free is seen", "",
                   EVERY_ALLOCATOR) {
  TestType world;
  const driver::Address block = get(world, 5000);
  memory::BlockInfo held;
  CHECK(world.memory.find(block + 4999, &held) == TestType::kAnswers);
  if (TestType::kAnswers) {
    CHECK(held.start == block);
    CHECK(held.bytes == 5000);
    CHECK(held.context == world.context);
    CHECK_FALSE(world.memory.find(block + 5000, &held));
  }
  world.free(block);
  CHECK(world.memory.free(block) != memory::Freed::kDone);
}

TEMPLATE_TEST_CASE("what the driver would not take back is not counted when its context has ended", "", Cut,
                   Dedicated) {
  TestType world;
  const driver::Address block = get(world, 100 * kMiB);
  REQUIRE(world.memory.taint(block, memory::Taint::kAdvised));
  world.driver.fail_release = driver::kInvalidContext;
  world.free(block);
  CHECK(world.booked() == 100 * kMiB);
  world.memory.close(world.context);
  CHECK(world.booked() == 0);
}
