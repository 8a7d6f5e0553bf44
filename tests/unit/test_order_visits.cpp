// What other contexts have to do with a context's memory: access to it, requests for it, and copies from and
// to its blocks.
#include <cstring>
#include <vector>

#include "order_world.hpp"

using namespace cupool;
using namespace cupool::test;
using order::Epoch;
using order::Reuse;

// ---- Access from one context to another one's memory.

TEST_CASE_METHOD(Process, "memory that another context may access is reused only when its old work is done") {
  all.join(kSecond);
  const OrderSteps app = of(kFirst);
  all.expect_peers(kFirst, "a test");
  CHECK(app.time.reuse() == Reuse::kCompleted);
  CHECK(std::strcmp(all.reason(), "a test") == 0);
  const Epoch stamp = app.use_and_free(kS);
  CHECK_FALSE(app.time.reach());
  CHECK_FALSE(app.hand_out(stamp));
  app.finish();
  CHECK(app.hand_out(stamp));
  app.work(kT);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(Process, "a context that only has access to another one's memory reuses its own as before") {
  all.join(kSecond);
  const OrderSteps app = of(kSecond);
  all.expect_peers(kFirst, "a test");
  CHECK(app.time.reuse() == Reuse::kLean);
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  app.work(kT);
  CHECK(driver.stream_waits.size() == 1);
}

TEST_CASE_METHOD(Process, "no context is made to wait for another one's work") {
  all.join(kSecond);
  const bool fences = GENERATE(false, true);
  if (fences) all.expect_untracked_work("a test");
  const OrderSteps first = of(kFirst), second = of(kSecond);
  if (GENERATE(false, true)) all.expect_peers(kFirst, "a test");
  for (int i = 0; i < 3; ++i) {
    const Epoch stamp = first.use_and_free(kS);
    first.time.reach();
    first.hand_out(stamp);
    second.work(kT);
    first.work(kU);
  }
  for (const auto& wait : driver.context_waits) CHECK(driver.made[wait.record].context == wait.context);
  for (const auto& wait : driver.stream_waits) CHECK(wait.stream != stream_of(kT));
}

TEST_CASE_METHOD(Process, "what leans when access is given is waited for, and nothing else") {
  all.join(kSecond);
  const OrderSteps app = of(kFirst);
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  const Epoch newer = app.use_and_free(kS);
  uint64_t asked = 0;
  driver.on_query = [&] {
    if (++asked == 5) driver.finish_oldest();
  };
  all.expect_peers(kFirst, "a test");
  CHECK(app.time.completed() >= stamp);
  CHECK(app.time.completed() < newer);
}

TEST_CASE_METHOD(Process, "what leans when access is given is waited for during a capture, too") {
  all.join(kSecond);
  const OrderSteps app = of(kFirst);
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  all.gate().begin_capture(kSecond);
  finish_after(driver, 5);
  all.expect_peers(kFirst, "a test");
  CHECK(app.time.completed() >= stamp);
}

TEST_CASE_METHOD(Process, "access that is given before a context has memory holds for it later") {
  all.join(kSecond);
  all.expect_peers(kSecond, "a test");
  CHECK(of(kFirst).time.reuse() == Reuse::kLean);
  CHECK(of(kSecond).time.reuse() == Reuse::kCompleted);
}

TEST_CASE_METHOD(Process, "access ends with the context whose memory it is") {
  all.join(kSecond);
  of(kSecond);
  all.expect_peers(kSecond, "a test");
  all.leave(kSecond);
  all.join(kSecond);
  CHECK(of(kSecond).time.reuse() == Reuse::kLean);
  all.leave(kSecond);
  const auto third = reinterpret_cast<driver::Context>(0x30);
  CHECK(of(third).time.reuse() == Reuse::kLean);
}

TEST_CASE_METHOD(
    Process,
    "what was waited for in vain in another context is not waited for again until more is done there") {
  constexpr uint64_t kMoment = 100'000, kLong = 60'000'000'000;
  const OrderSteps app = of(kFirst);
  app.use_and_free(kS);
  CHECK_FALSE(app.time.wait_for_frees_elsewhere(0, kMoment));
  const uint64_t asked = driver.queries;
  finish_after(driver, 50);
  CHECK_FALSE(app.time.wait_for_frees_elsewhere(0, kLong));
  CHECK(driver.queries <= asked + 1);
  app.finish();
  app.use_and_free(kS);
  finish_after(driver, 50);
  CHECK(app.time.wait_for_frees_elsewhere(0, kLong));
}

TEST_CASE_METHOD(Process, "access holds on when the driver refuses to end the context") {
  all.join(kSecond);
  of(kSecond);
  all.expect_peers(kSecond, "a test");
  all.begin_end(kSecond, 1);
  const bool is_met_again = GENERATE(false, true);
  const bool has_begun_again = GENERATE(false, true);
  if (is_met_again) all.join(kSecond);
  if (has_begun_again) of(kSecond);
  all.ended(1, false);
  CHECK(of(kSecond).time.reuse() == Reuse::kCompleted);
  // Until it ends; a new context with its handle may be there before we have heard of that.
  all.begin_end(kSecond, 2);
  if (is_met_again) all.join(kSecond);
  all.ended(2, true);
  CHECK(of(kSecond).time.reuse() == Reuse::kLean);
}

TEST_CASE_METHOD(Process, "a context whose end the driver refused is still one of two") {
  all.join(kSecond);
  of(kFirst);
  all.begin_end(kSecond, 1);
  all.ended(1, false);
  CHECK(all.only() == nullptr);
  all.begin_end(kSecond, 2);
  all.ended(2, true);
  CHECK(all.only() == &of(kFirst).time);
}

// ---- Copies of one context's stream from and to blocks of another.

namespace {
constexpr driver::Address kBlock = 0x200000, kOther = 0x300000;
}

TEST_CASE_METHOD(Process, "a copy from another context waits for the old work of the block it names alone") {
  const bool fences = GENERATE(false, true);
  all.join(kSecond);
  if (fences) all.expect_untracked_work("a test");
  const OrderSteps app = of(kFirst);
  const Epoch first = app.use_and_free(kS);
  app.time.reach();
  REQUIRE(app.hand_out(first, kBlock));
  const Epoch second = app.use_and_free(kS);
  app.time.reach();
  REQUIRE(app.hand_out(second, kOther));
  CHECK(app.time.leant_on_by(kBlock) == first);
  CHECK(app.time.leant_on_by(kOther) == second);
  REQUIRE(app.time.before_visit(kT, stream_of(kT), kSecond, first));
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == 0);
}

TEST_CASE_METHOD(Process, "a copy from another context of a block that leans on nothing does not wait") {
  all.join(kSecond);
  const OrderSteps app = of(kFirst);
  REQUIRE(app.hand_out(app.use_and_free(kS), kOther));
  REQUIRE(app.time.before_visit(kT, stream_of(kT), kSecond, app.time.leant_on_by(kBlock)));
  CHECK(driver.stream_waits.empty());
}

TEST_CASE_METHOD(Process,
                 "blocks handed out before there was a second context count as leaning on all of it") {
  const OrderSteps app = of(kFirst);
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp, kBlock));
  CHECK(app.time.leant_on_by(kBlock) == 0);
  all.join(kSecond);
  CHECK(app.time.leant_on_by(kBlock) == stamp);
  CHECK(app.time.leant_on_by(kOther) == stamp);
}

TEST_CASE_METHOD(Process, "of thousands of blocks that lean at once each counts as leaning on its own work") {
  all.join(kSecond);
  const OrderSteps app = of(kFirst);
  std::vector<Epoch> stamps;
  for (driver::Address i = 0; i < 3000; ++i) {
    stamps.push_back(app.use_and_free(kS));
    REQUIRE(app.hand_out(stamps.back(), kBlock + i * 256));
  }
  for (driver::Address i = 0; i < 3000; ++i) REQUIRE(app.time.leant_on_by(kBlock + i * 256) == stamps[i]);
}

TEST_CASE("of more blocks than can be remembered none counts as leaning on less than it does") {
  order::LeantBlocks blocks;
  const Epoch floor = GENERATE(0, 5);
  blocks.raise_floor(floor);
  const Epoch most = 200'000;
  for (Epoch i = 10; i < most; ++i) blocks.add(kBlock + i * 256, i, 9);
  Epoch found = 0;
  for (Epoch i = 10; i < most; ++i) {
    const Epoch leans = blocks.of(kBlock + i * 256);
    if (leans < i) FAIL("less than it does: " << i);
    found += leans == i ? 1u : 0u;
  }
  CHECK(found > 40'000);
  // What is done gives way without a trace.
  blocks.clear();
  blocks.raise_floor(floor);
  for (Epoch i = 10; i < most; ++i) blocks.add(kBlock + i * 256, i, i);
  for (Epoch i = 0; i < 10; ++i) CHECK(blocks.of(kBlock + i * 256) == floor);
  CHECK(blocks.of(kBlock + (most - 1) * 256) == most - 1);
}

TEST_CASE_METHOD(
    Process,
    "untracked work and exact reuse hold for contexts that come later, and the first reason is told") {
  CHECK(all.reason() == nullptr);
  CHECK(all.reuse() == Reuse::kLean);
  all.expect_untracked_work("a test");
  all.expect_untracked_work("another");
  CHECK(std::strcmp(all.reason(), "a test") == 0);
  CHECK(all.reuse() == Reuse::kOrder);
  CHECK(of(kFirst).time.reuse() == Reuse::kOrder);
  CHECK(of(kSecond).time.reuse() == Reuse::kOrder);
  all.use_completed_only("a third");
  CHECK(all.reuse() == Reuse::kCompleted);
  CHECK(of(kFirst).time.reuse() == Reuse::kCompleted);
  CHECK(of(kSecond).time.reuse() == Reuse::kCompleted);
  all.leave(kSecond);
  CHECK(of(kSecond).time.reuse() == Reuse::kCompleted);
  const auto third = reinterpret_cast<driver::Context>(0x30);
  CHECK(of(third).time.reuse() == Reuse::kCompleted);
}
