// The native pool over a scripted driver: what becomes of memory when its context ends.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "fake_driver.hpp"
#include "fake_native_driver.hpp"
#include "native/native_pool.hpp"
#include "other_thread.hpp"
#include "upstream/limit.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct NativeWorld {
  FakeDriver driver;
  FakeNativeDriver native;
  order::Timelines order{&driver};
  context::InFlight in_flight;
  native::NativePool pool{driver, driver, native, order, in_flight};
  const uint64_t booked_before = upstream::Limit::booked(0);
  uint64_t endings = 0;
  driver::Context first = reinterpret_cast<driver::Context>(0x10);
  driver::Context second = reinterpret_cast<driver::Context>(0x20);

  driver::Address allocate(driver::Context context) {
    driver::Address address = 0;
    REQUIRE(pool.allocate(context, 1000, &address) == driver::kSuccess);
    return address;
  }
  bool free(driver::Address address) {
    return pool.free(address, allocator::Waits::kIfAsked) == allocator::Freed::kDone;
  }
  // As the front does it; the driver may give the handle to another context at once.
  uint64_t close(driver::Context context) {
    in_flight.begin_end(context);
    in_flight.wait(context, [] { return false; });
    pool.begin_end(context, ++endings);
    in_flight.ended(context);
    return endings;
  }
  uint64_t booked() const { return upstream::Limit::booked(0) - booked_before; }
};

}  // namespace

TEST_CASE_METHOD(NativeWorld, "memory of a context that is being ended is freed only when it is gone") {
  const auto block = allocate(first);
  const uint64_t ending = close(first);
  CHECK_FALSE(pool.has_block(block));
  // Another thread uses the device before the driver has ended the context, whose work may still run.
  allocate(second);
  CHECK(native.blocks.count(block) == 1);
  pool.ended(ending, true);
  CHECK(booked() == 1000);
  // The same handle seen again is another context.
  allocate(first);
  CHECK(native.blocks.count(block) == 0);
  CHECK(native.destroyed == 1);
}

TEST_CASE_METHOD(NativeWorld, "memory of a context that the driver refused to end is unchanged") {
  const auto block = allocate(first);
  pool.ended(close(first), false);
  CHECK(pool.has_block(block));
  CHECK(booked() == 1000);
  allocate(second);
  CHECK(native.blocks.count(block) == 1);
  CHECK(free(block));
  CHECK(native.blocks.count(block) == 0);
  allocate(first);
  CHECK(native.pools == 2);
}

TEST_CASE_METHOD(NativeWorld, "the end of a context does not affect the next one with the same handle") {
  allocate(first);
  const uint64_t ending = close(first);
  // The driver has ended it and given its handle away again before its caller got round to saying so.
  const auto block = allocate(first);
  const uint64_t next_ending = close(first);
  pool.ended(ending, true);
  allocate(second);
  CHECK(native.blocks.count(block) == 1);
  pool.ended(next_ending, true);
  allocate(first);
  CHECK(native.blocks.count(block) == 0);
}

TEST_CASE_METHOD(NativeWorld, "a context ends after the frees that another thread makes for it") {
  const auto block = allocate(first);
  const auto other = allocate(second);
  order.gate().begin_capture();
  CHECK(free(block));
  order.gate().end_capture();
  CHECK(native.blocks.count(block) == 1);

  std::optional<OtherThread> closing;
  native.on_free = [&] {
    if (closing) return;
    closing.emplace([&] { close(first); });
    CHECK(closing->stands());
  };
  // An allocation would have to wait for work, where the driver's does not.
  allocate(second);
  CHECK(native.blocks.count(block) == 1);
  CHECK(free(other));  // makes the free that had to wait
  REQUIRE(closing);
  closing->join();
  CHECK(native.blocks.count(block) == 0);
}

TEST_CASE_METHOD(NativeWorld, "a block that another thread frees while the last try fails is waited for") {
  const auto block = allocate(first);
  int tries = 0;
  native.on_allocate = [&] {
    if (++tries == 2) CHECK(free(block));
    return tries <= 2 ? driver::kOutOfMemory : driver::kSuccess;
  };
  allocate(first);
  CHECK(tries == 3);
  // And where nobody frees anything the answer comes at once.
  tries = 0;
  native.on_allocate = [&] { return ++tries, driver::kOutOfMemory; };
  driver::Address address = 0;
  CHECK(pool.allocate(first, 1000, &address) == driver::kOutOfMemory);
  CHECK(tries == 2);
}

TEST_CASE_METHOD(NativeWorld, "the native pool serves while the driver is asked how much of it is used") {
  const auto block = allocate(first);
  int served = 0;
  // With the lock held this would never return.
  native.on_question = [&] { std::thread([&] { served += pool.has_block(block); }).join(); };
  pool.usage(0);
  CHECK(served == 1);
  pool.reset_peaks();
  CHECK(served == 2);
}

TEST_CASE_METHOD(NativeWorld, "a pool that ends while all are asked is not asked for the next context") {
  allocate(first);
  CHECK(free(allocate(second)));
  std::function<void()> meanwhile = [&] {
    // The next context has the same handle.
    pool.ended(close(second), true);
    allocate(second);
  };
  native.on_question = [&] {
    if (const auto once = std::exchange(meanwhile, nullptr)) once();
  };
  pool.reset_peaks();
  CHECK(native.destroyed == 1);
  CHECK(native.strays == 0);
}

TEST_CASE_METHOD(NativeWorld, "what is freed as its context begins to end is freed when that is gone") {
  const auto block = allocate(first);
  // From now on nobody waits for calls that begin there.
  in_flight.begin_end(first);
  const uint64_t calls = driver.calls();
  CHECK(free(block));
  CHECK(driver.calls() == calls);
  CHECK(native.blocks.count(block) == 1);
  CHECK(booked() == 0);
  pool.begin_end(first, ++endings);
  in_flight.ended(first);
  pool.ended(endings, true);
  allocate(first);
  CHECK(native.blocks.count(block) == 0);
}

TEST_CASE_METHOD(NativeWorld, "one device's memory goes back without a wait for the work of another") {
  allocate(first);
  pool.release_everything(1, allocator::Effort::kAll, nullptr);
  CHECK(native.trims == 0);
  pool.release_everything(0, allocator::Effort::kAll, nullptr);
  CHECK(native.trims == 1);
}

TEST_CASE_METHOD(NativeWorld, "who asks in one context stands in no wait for the work of another") {
  allocate(first);
  allocate(second);
  pool.release_everything(0, allocator::Effort::kAll, first);
  CHECK(native.synchronisations == 1);
  CHECK(native.trims == 2);
  driver.done_at_once = false;
  uint64_t questions = 0;
  driver.on_query = [&] { ++questions; };
  pool.release_everything(0, allocator::Effort::kAll, second);
  CHECK(native.synchronisations == 2);
  CHECK(questions == 1);
}

TEST_CASE_METHOD(NativeWorld, "a stream-ordered free that the driver refuses is made after the capture") {
  const driver::Address address = allocate(first);
  native.blocks.erase(address);
  order.gate().begin_capture(first);
  const uint64_t before = driver.records;
  REQUIRE(pool.free_on(address, reinterpret_cast<driver::Stream>(0x1000)));
  CHECK(driver.records == before);
  order.gate().end_capture();
  free(allocate(first));
  CHECK(driver.records > before + 1);
}

TEST_CASE_METHOD(NativeWorld, "a capture can begin in another context while a context waits for new memory") {
  std::atomic<bool> has_begun{false};
  driver.on_order = [&] {
    if (has_begun) return;
    std::thread([&] { order.gate().begin_capture(second); }).join();
    has_begun = true;
  };
  allocate(first);
  CHECK(has_begun);
}
