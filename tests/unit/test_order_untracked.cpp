// What makes us stop trusting lanes, or stop leaning on seals at all; a driver without context events;
// contexts that come and go, and a fork.
#include <functional>
#include <thread>

#include "order_world.hpp"

using namespace cupool;
using namespace cupool::test;
using order::Epoch;
using order::Lane;
using order::Reuse;

namespace {

void in_another_thread(const std::function<void()>& steps) { std::thread(steps).join(); }

}  // namespace

// ---- Untracked work: work that we do not see.

TEST_CASE_METHOD(OrderWorld,
                 "where work may be unseen, the whole context waits before a block is handed out") {
  time.expect_untracked_work();
  CHECK(time.reuse() == Reuse::kOrder);
  const Epoch first = app.use_and_free(kS);
  const Epoch second = app.use_and_free(kS);
  CHECK_FALSE(app.hand_out(first));
  CHECK(time.reach());
  REQUIRE(driver.context_waits.size() == 1);
  CHECK(driver.context_waits[0].context == kFirst);
  CHECK(driver.context_waits[0].record == 1);
  CHECK(app.hand_out(first));
  CHECK(app.hand_out(second));
  // Once for all of them.
  CHECK_FALSE(time.reach());
  CHECK(driver.orders == 1);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(OrderWorld, "where work may be unseen, blocks are not handed out because none was seen") {
  time.expect_untracked_work();
  CHECK_FALSE(time.is_idle());
  const Epoch stamp = app.free();
  CHECK_FALSE(app.hand_out(stamp));
  app.free_and_seal();
  CHECK(driver.records == 1);
  // Nor does an old event serve: there may be work behind it.
  app.free_and_seal();
  CHECK(driver.records == 2);
  app.finish();
  CHECK(app.hand_out(stamp));
  CHECK_FALSE(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "where work may be unseen, a wait for one lane proves nothing") {
  time.expect_untracked_work();
  app.work(kS);
  CHECK(time.begin_wait(kS) == 0);
  CHECK(time.begin_wait(Lane::kMany) != 0);
}

TEST_CASE_METHOD(OrderWorld,
                 "what leans on a seal when untracked work comes is ordered in the whole context") {
  const Epoch stamp = app.use_and_free(kS);
  app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  time.expect_untracked_work();
  REQUIRE(driver.context_waits.size() == 1);
  CHECK(driver.context_waits[0].record == 0);
  time.expect_untracked_work();
  CHECK(driver.orders == 1);
}

TEST_CASE_METHOD(OrderWorld, "where nothing leans, untracked work makes nothing wait") {
  app.use_and_free(kS);
  time.expect_untracked_work();
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(
    OrderWorld, "a block that was found just before untracked work came is ordered before it is handed out") {
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(stamp <= time.reachable());
  time.expect_untracked_work();
  time.lean_on(stamp, kSomeBlock);
  REQUIRE(driver.context_waits.size() == 1);
  CHECK(driver.context_waits[0].record == 0);
}

TEST_CASE_METHOD(OrderWorld, "where the device refuses to order a context, blocks wait until they are over") {
  time.expect_untracked_work();
  const Epoch stamp = app.use_and_free(kS);
  driver.fail_order = driver::kNotSupported;
  CHECK_FALSE(time.reach());
  CHECK_FALSE(app.hand_out(stamp));
  app.finish();
  CHECK(app.hand_out(stamp));
}

TEST_CASE_METHOD(OrderWorld, "during a capture no context is ordered") {
  time.expect_untracked_work();
  const Epoch stamp = app.use_and_free(kS);
  gate.begin_capture();
  CHECK_FALSE(time.reach());
  CHECK_FALSE(app.hand_out(stamp));
  CHECK(driver.orders == 0);
}

// ---- Exact: nothing is handed out before its work is over.

TEST_CASE_METHOD(OrderWorld, "where reuse is exact nothing leans on a seal, and no stream waits") {
  time.use_completed_only();
  CHECK(time.reuse() == Reuse::kCompleted);
  const Epoch stamp = app.use_and_free(kS);
  CHECK_FALSE(app.hand_out(stamp));
  app.work(kS);
  app.work(kT);
  app.finish();
  CHECK(app.hand_out(stamp));
  CHECK_FALSE(time.is_leaning());
  app.work(kU);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(OrderWorld, "where reuse is exact, blocks are still handed out while no work is under way") {
  time.use_completed_only();
  CHECK(app.hand_out(app.free()));
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(OrderWorld, "where reuse is exact an allocation neither waits nor calls the driver") {
  time.use_completed_only();
  const Epoch stamp = app.use_and_free(kS);
  const uint64_t before = driver.calls();
  // Were it waited for, this test would still end.
  finish_after(driver, 50);
  CHECK_FALSE(time.reach());
  CHECK_FALSE(app.hand_out(stamp));
  CHECK(driver.calls() == before);
}

TEST_CASE_METHOD(OrderWorld, "a free that waits waits for all work before it, of whichever thread") {
  time.use_completed_only();
  app.work(kS);
  in_another_thread([&] { app.work(kT); });
  finish_after(driver, 5);
  const Epoch stamp = app.free_and_wait();
  CHECK(driver.queries >= 5);
  CHECK(time.completed() >= stamp);
  CHECK(time.is_idle());
  CHECK(app.hand_out(stamp));
  CHECK_FALSE(time.is_leaning());
  CHECK(driver.synchronisations == 0);
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(OrderWorld, "a free that waits asks for nothing while no work is under way") {
  time.use_completed_only();
  app.free_and_wait();
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(OrderWorld, "during a capture a free that would wait does not, and calls nothing") {
  time.use_completed_only();
  const Epoch stamp = app.use_and_free(kS);
  app.work(kT);
  const uint64_t before = driver.calls();
  finish_after(driver, 50);
  gate.begin_capture();
  app.free_and_wait();
  CHECK(driver.calls() == before);
  CHECK_FALSE(app.hand_out(stamp));
}

TEST_CASE_METHOD(OrderWorld, "a free that waits ends when the driver fails, and has proved nothing") {
  time.use_completed_only();
  app.work(kS);
  SECTION("in the record") { driver.fail_record = driver::kInvalidContext; }
  SECTION("in the questions") { driver.fail_query = driver::kInvalidContext; }
  const Epoch stamp = app.free_and_wait();
  CHECK(time.completed() < stamp);
  CHECK_FALSE(app.hand_out(stamp));
}

TEST_CASE_METHOD(OrderWorld, "what leans on a seal when another device may touch memory is waited for") {
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  finish_after(driver, 5);
  time.expect_direct_access();
  CHECK(time.completed() >= stamp);
}

TEST_CASE_METHOD(OrderWorld, "what only a context's wait had made reachable is not, once reuse is exact") {
  time.expect_untracked_work();
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(time.reach());
  REQUIRE(app.hand_out(stamp));
  finish_after(driver, 50);
  time.use_completed_only();
  // The one that was handed out is over, or no more of them is.
  const bool is_over = time.completed() >= stamp;
  const bool is_withheld = stamp > time.reachable();
  CHECK((is_over || is_withheld));
}

TEST_CASE_METHOD(OrderWorld, "exact reuse stays exact when untracked work comes, and the other way round") {
  const bool untracked_first = GENERATE(true, false);
  if (untracked_first) time.expect_untracked_work();
  time.use_completed_only();
  if (!untracked_first) time.expect_untracked_work();
  CHECK(time.reuse() == Reuse::kCompleted);
  CHECK_FALSE(app.hand_out(app.use_and_free(kS)));
  CHECK(driver.orders == 0);
}

// ---- Streams that wait for values, and several threads.

TEST_CASE_METHOD(Process, "several threads and waits for values make reuse exact by themselves") {
  const bool waits_first = GENERATE(true, false);
  const OrderSteps app = of(kFirst);
  if (waits_first) all.note_value_wait();
  app.work(kS);
  CHECK(app.time.reuse() == Reuse::kLean);
  in_another_thread([&] { app.work(kT); });
  CHECK(app.time.has_several_threads());
  if (!waits_first) {
    CHECK(app.time.reuse() == Reuse::kLean);
    all.note_value_wait();
  }
  CHECK(app.time.reuse() == Reuse::kCompleted);
  CHECK(all.reuse() == Reuse::kCompleted);
  CHECK(all.reason() != nullptr);
}

TEST_CASE_METHOD(Process, "a thread that only frees counts, and nothing leans on a seal from then on") {
  const OrderSteps app = of(kFirst);
  all.note_value_wait();
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(stamp <= app.time.cheap());
  in_another_thread([&] { app.free_and_seal(); });
  CHECK(app.time.reuse() == Reuse::kCompleted);
  CHECK(stamp > app.time.cheap());
  CHECK(stamp > app.time.reachable());
}

TEST_CASE_METHOD(Process, "waits for values in one thread, or several threads without them, change nothing") {
  const OrderSteps app = of(kFirst);
  SECTION("one thread") {
    all.note_value_wait();
    app.work(kS);
    app.work(kT);
    all.note_value_wait();
  }
  SECTION("no such waits") {
    app.work(kS);
    in_another_thread([&] { app.work(kT); });
  }
  CHECK(app.time.reuse() == Reuse::kLean);
  CHECK(app.hand_out(app.use_and_free(kS)));
}

TEST_CASE_METHOD(Process, "a thread that waits for a value is not made to wait for another one's frees") {
  const OrderSteps app = of(kFirst);
  // S waits for a word that only this thread will bring; the other one freed and allocated meanwhile.
  const bool waits_first = GENERATE(true, false);
  if (waits_first) all.note_value_wait();
  in_another_thread([&] {
    app.work(kS);
    REQUIRE(app.hand_out(app.use_and_free(kS)));
  });
  app.work(kT);
  bool waited = false;
  driver.on_query = [&, asked = 0]() mutable {
    if (++asked < 50) return;
    waited = true;
    driver.finish();
  };
  all.note_value_wait();
  CHECK_FALSE(waited);
}

// ---- A driver without context events.

TEST_CASE_METHOD(OrderWorld,
                 "without context events a free that is due for a seal waits, nothing else does") {
  driver.context_events = false;
  app.work(kS);
  const Epoch stamp = app.free();
  app.work(kT);
  time.advance();
  CHECK_FALSE(time.reach());
  CHECK_FALSE(app.hand_out(stamp));
  app.free_in_order();
  time.destroy_stream(kT);
  CHECK(driver.calls() == 0);
  app.free_and_seal();
  CHECK(driver.synchronisations == 1);
  CHECK(driver.records == 0);
  CHECK(time.completed() >= stamp);
  CHECK(time.is_idle());
  // What is over is handed out whatever comes.
  app.work(kS);
  CHECK(app.hand_out(stamp));
  app.work(kT);
  CHECK(app.hand_out(stamp));
  CHECK(driver.calls() == 1);
}

TEST_CASE_METHOD(OrderWorld, "without context events a free that waits does it once") {
  driver.context_events = false;
  time.use_completed_only();
  app.work(kS);
  const Epoch stamp = app.free_and_wait();
  CHECK(driver.synchronisations == 1);
  CHECK(driver.calls() == 1);
  CHECK(app.hand_out(stamp));
}

TEST_CASE_METHOD(OrderWorld, "without context events a wait that fails inside a free proves nothing") {
  driver.context_events = false;
  app.work(kS);
  driver.fail_synchronize = driver::kInvalidContext;
  const Epoch stamp = app.free_and_seal();
  CHECK(time.completed() < stamp);
  CHECK_FALSE(time.is_idle());
  CHECK_FALSE(app.hand_out(stamp));
}

// ---- Contexts.

TEST_CASE_METHOD(OrderWorld, "a timeline whose context ended serves the next, and stamps go on rising") {
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  app.work(kT);
  const uint64_t before = driver.calls();
  time.end();
  CHECK(time.context() == nullptr);
  time.begin(kSecond);
  CHECK(time.context() == kSecond);
  // Nothing of the old one is asked about, waited for or remembered.
  CHECK(time.is_idle());
  CHECK_FALSE(time.is_leaning());
  CHECK(time.open() > stamp);
  time.advance();
  app.work(kU);
  CHECK(driver.calls() == before);
  const Epoch next = app.use_and_free(kS);
  CHECK(next > stamp);
  CHECK(driver.made.back().context == kSecond);
  // Its events are new: the old ones died with their context.
  CHECK(driver.made.back().event != driver.made.front().event);
  REQUIRE(app.hand_out(next));
  app.work(kT);
  CHECK(driver.stream_waits.back().record == driver.made.size() - 1);
}

TEST_CASE_METHOD(OrderWorld, "a context that failed does not make the next one with its timeline fail") {
  app.use_and_free(kS);
  driver.fail_query = driver::kInvalidContext;
  app.finish();
  time.end();
  driver.fail_query = driver::kSuccess;
  time.begin(kSecond);
  const Epoch stamp = app.use_and_free(kS);
  CHECK(app.hand_out(stamp));
  app.finish();
  CHECK(time.completed() >= stamp);
}

TEST_CASE_METHOD(Process,
                 "each context has a timeline of its own, and there is an only one while one exists") {
  CHECK(all.only() == &of(kFirst).time);
  all.join(kSecond);
  // It has no memory of ours yet, but its streams are not the first one's.
  CHECK(all.only() == nullptr);
  CHECK(all.find(kSecond) == nullptr);
  order::Timeline* const second = all.of(kSecond);
  REQUIRE(second != nullptr);
  CHECK(second != all.of(kFirst));
  CHECK(all.find(kSecond) == second);
  CHECK(all.only() == nullptr);
  all.leave(kFirst);
  CHECK(all.find(kFirst) == nullptr);
  CHECK(all.only() == second);
  all.leave(kSecond);
  CHECK(all.only() == nullptr);
}

TEST_CASE_METHOD(Process, "there is no only timeline before there is memory of ours") {
  order::Timelines none{&driver};
  CHECK_FALSE(none.any());
  none.join(kFirst);
  CHECK(none.only() == nullptr);
  CHECK(none.find(kFirst) == nullptr);
  CHECK(none.find(nullptr) == nullptr);
}

TEST_CASE_METHOD(Process, "no context has no timeline, even after one has ended") {
  of(kFirst).work(kS);
  all.leave(kFirst);
  CHECK(all.find(nullptr) == nullptr);
}

TEST_CASE_METHOD(Process, "joining twice is joining once") {
  all.join(kFirst);
  all.join(kFirst);
  CHECK(all.only() == &of(kFirst).time);
}

TEST_CASE_METHOD(Process, "work of one context is neither sealed nor waited for on behalf of another") {
  const OrderSteps first = of(kFirst), second = of(kSecond);
  const Epoch stamp = first.use_and_free(kS);
  CHECK(second.time.is_idle());
  second.free_and_seal();
  CHECK(driver.records == 1);
  REQUIRE(first.hand_out(stamp));
  second.work(kT);
  CHECK(driver.waits == 0);
  CHECK(second.time.wait_for_all());
  CHECK(driver.synchronised == std::vector{kSecond});
  CHECK(first.time.is_leaning());
}

TEST_CASE_METHOD(Process, "a free that waits waits for its own context only") {
  all.use_completed_only("a test");
  const OrderSteps first = of(kFirst), second = of(kSecond);
  second.work(kS);
  const Epoch other = first.use_and_free(kS);
  const uint64_t before = driver.records;
  finish_after(driver, 5);
  const Epoch stamp = second.free_and_wait();
  CHECK(second.time.completed() >= stamp);
  CHECK(driver.records == before + 1);
  CHECK(driver.made.back().context == kSecond);
  CHECK(first.time.completed() < other);
}

TEST_CASE_METHOD(Process, "a context's timeline is used again when it has ended") {
  order::Timeline* const before = all.of(kFirst);
  of(kFirst).use_and_free(kS);
  all.leave(kFirst);
  CHECK(all.of(kSecond) == before);
  CHECK(before->is_idle());
  CHECK(all.only() == before);
}

TEST_CASE_METHOD(Process, "untracked work that comes while no context exists holds for the next") {
  all.of(kFirst);
  all.leave(kFirst);
  all.expect_untracked_work("a test");
  CHECK(of(kSecond).time.reuse() == Reuse::kOrder);
}

// ---- Forks.

TEST_CASE_METHOD(Process, "a fork child knows of no context, no work and no capture") {
  const OrderSteps app = of(kFirst);
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  app.work(kT);
  all.gate().begin_capture();
  REQUIRE(all.gate().is_capturing());
  all.forget_after_fork();
  const uint64_t before = driver.calls();
  CHECK_FALSE(all.is_capturing());
  CHECK(all.only() == nullptr);
  CHECK(all.find(kFirst) == nullptr);
  all.join(kFirst);
  const OrderSteps child = of(kFirst);
  CHECK(all.only() == &child.time);
  CHECK(child.time.is_idle());
  CHECK_FALSE(child.time.is_leaning());
  child.time.advance();
  child.work(kT);
  child.work(kU);
  CHECK(driver.calls() == before);
}

TEST_CASE_METHOD(OrderWorld,
                 "untracked work that comes during a capture orders what leant when the capture is over") {
  app.work(kU);
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  gate.begin_capture(kFirst);
  time.expect_untracked_work();
  CHECK(driver.context_waits.empty());
  gate.end_capture();
  SECTION("at its end") { time.order_owed(); }
  SECTION("at the next allocation that looks for memory") { time.advance(); }
  SECTION("at the next free that seals") { app.free_and_seal(); }
  REQUIRE(driver.context_waits.size() == 1);
  CHECK(driver.context_waits[0].record == 0);
  time.order_owed();
  CHECK(driver.context_waits.size() == 1);
}
