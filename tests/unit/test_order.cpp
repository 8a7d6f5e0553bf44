// The rules of the timeline one by one, on a driver whose events are done when the test says so: what may be
// handed out when, when a seal is made and what it covers, which streams wait for which of them, and what
// happens when the driver refuses.
#include <deque>
#include <random>

#include "order_world.hpp"

using namespace cupool;
using namespace cupool::test;
using order::Epoch;
using order::Lane;

TEST_CASE("lanes are told apart by stream, and a set of them is none, one or many") {
  CHECK(order::lane_of_handle(0) == order::lane_of_handle(1));
  CHECK(order::lane_of_handle(0) == Lane::kLegacy);
  CHECK(order::lane_of_handle(0x1000) != order::lane_of_handle(0x1008));
  CHECK(order::lane_of_thread(1) != order::lane_of_thread(2));
  CHECK(order::unite(Lane::kNone, kS) == kS);
  CHECK(order::unite(kS, Lane::kNone) == kS);
  CHECK(order::unite(kS, kS) == kS);
  CHECK(order::unite(kS, kT) == Lane::kMany);
  CHECK(order::unite(Lane::kMany, kS) == Lane::kMany);
}

// ---- While no work is under way.

TEST_CASE_METHOD(OrderWorld, "while no work is under way every block is handed out without a driver call") {
  CHECK(time.is_idle());
  CHECK(time.cheap() == order::kAnyStamp);
  for (int i = 0; i < 100; ++i) CHECK(app.hand_out(app.free()));
  app.work(kS);
  app.work(kT);
  CHECK(driver.calls() == 0);
}

TEST_CASE_METHOD(OrderWorld, "a free while no work is under way makes no seal") {
  app.free_and_seal();
  app.use_and_free(kS);
  app.finish();
  REQUIRE(time.is_idle());
  const uint64_t before = driver.calls();
  app.free_and_seal();
  CHECK(driver.calls() == before);
}

TEST_CASE_METHOD(OrderWorld, "with the first submission blocks are not handed out any more as they come") {
  app.work(kS);
  CHECK_FALSE(time.is_idle());
  const Epoch stamp = app.free();
  CHECK(stamp > time.cheap());
  CHECK(stamp > time.reachable());
  CHECK(stamp > time.completed());
}

TEST_CASE_METHOD(OrderWorld,
                 "when the work of all seals is over and nothing is noted, no work is under way") {
  app.use_and_free(kS);
  app.finish();
  CHECK(time.is_idle());
  app.work(kT);
  CHECK_FALSE(time.is_idle());
}

TEST_CASE_METHOD(OrderWorld, "a seal that is done does not end the lanes that were noted after it") {
  app.use_and_free(kS);
  app.work(kT);
  app.finish();
  CHECK_FALSE(time.is_idle());
  const Epoch stamp = app.free_and_seal();
  REQUIRE(app.hand_out(stamp));
  app.work(kS);
  CHECK(driver.waits == 1);
}

// ---- Seals.

TEST_CASE_METHOD(OrderWorld, "only a free records an event, nothing else does") {
  app.work(kS);
  app.work(kT);
  const Epoch stamp = app.free();
  time.advance();
  CHECK_FALSE(time.reach());
  CHECK_FALSE(app.hand_out(stamp));
  app.work(kU);
  app.wait(Lane::kMany, false);
  time.destroy_stream(kS);
  CHECK(time.wait_for_leant());
  CHECK(driver.records == 0);
  app.free_and_seal();
  CHECK(driver.records == 1);
}

TEST_CASE_METHOD(OrderWorld, "a seal makes what was freed before it reachable, what is freed later not") {
  app.work(kS);
  const Epoch early = app.free();
  const Epoch stamp = app.free_and_seal();
  CHECK(stamp == early);
  app.work(kS);
  const Epoch late = app.free();
  CHECK(late > stamp);
  CHECK(driver.records == 1);
  CHECK(app.hand_out(early));
  CHECK(app.hand_out(stamp));
  CHECK_FALSE(app.hand_out(late));
  CHECK(stamp > time.completed());
}

TEST_CASE_METHOD(OrderWorld, "where nothing was submitted since the last seal, its event serves on") {
  const Epoch first = app.use_and_free(kS);
  for (int i = 0; i < 10; ++i) {
    const Epoch stamp = app.free_and_seal();
    CHECK(stamp > first);
    CHECK(app.hand_out(stamp));
  }
  CHECK(driver.records == 1);
  app.work(kT);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == 0);
  // Its end is the end of what was added to it, too.
  app.work(kS);
  const Epoch last = time.open();
  app.finish();
  CHECK(time.completed() == last - 1);
}

TEST_CASE_METHOD(OrderWorld, "after another submission an old event serves no more") {
  app.use_and_free(kS);
  app.use_and_free(kS);
  CHECK(driver.records == 2);
}

TEST_CASE_METHOD(OrderWorld, "the epoch's number goes up before its event is recorded") {
  app.work(kS);
  const Epoch stamp = app.free();
  bool went_up = false;
  driver.on_record = [&] { went_up = time.open() == stamp + 1; };
  app.free_and_seal();
  CHECK(went_up);
}

TEST_CASE_METHOD(OrderWorld,
                 "a seal that is done proves all that was freed before it, and the earlier seals") {
  const Epoch first = app.use_and_free(kS);
  const Epoch second = app.use_and_free(kT);
  time.advance();
  CHECK(time.completed() < first);
  driver.finish_oldest();
  time.advance();
  CHECK(time.completed() == first);
  driver.finish_oldest();
  time.advance();
  CHECK(time.completed() == second);
}

TEST_CASE_METHOD(OrderWorld, "what is over is handed out although its lane works on") {
  for (const bool by_program : {true, false}) {
    CAPTURE(by_program);
    app.work(kS);
    const Epoch stamp = by_program ? app.free() : app.free_and_seal();
    if (by_program) app.wait(Lane::kMany, true);
    app.finish();
    REQUIRE(time.completed() >= stamp);
    app.work(kS);
    CHECK(stamp <= time.cheap());
    CHECK(stamp <= time.reachable());
    app.work(kT);
    CHECK(stamp <= time.cheap());
    CHECK(stamp <= time.reachable());
    app.wait(Lane::kMany, true);
  }
}

TEST_CASE_METHOD(OrderWorld, "streams are never made to wait for an event that was recorded outside a free") {
  app.work(kS);
  const Epoch stamp = app.free();
  // The driver's stream-ordered free waits for nothing.
  app.free_in_order();
  CHECK(driver.records == 1);
  CHECK_FALSE(app.hand_out(stamp));
  // It does not serve for a free that comes later either.
  const Epoch later = app.free_and_seal();
  CHECK(driver.records == 2);
  CHECK(app.hand_out(stamp));
  CHECK(app.hand_out(later));
  app.free_in_order();
  app.work(kT);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == 1);
}

TEST_CASE_METHOD(OrderWorld, "an event that was recorded outside a free tells when work is over") {
  app.work(kS);
  const Epoch stamp = app.free();
  app.free_in_order();
  app.finish();
  CHECK(time.completed() == stamp);
  CHECK(time.is_idle());
}

// ---- Hand-outs that lean on a seal.

TEST_CASE_METHOD(OrderWorld,
                 "handing out costs no call, and the next lane waits once, for the block's seal") {
  const Epoch stamp = app.use_and_free(kS);
  app.use_and_free(kS);
  const uint64_t before = driver.calls();
  REQUIRE(app.hand_out(stamp));
  CHECK(time.is_leaning());
  CHECK(driver.calls() == before);
  app.work(kT);
  app.work(kT);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].stream == stream_of(kT));
  // Not the newest: more would be waited for than the block asks for.
  CHECK(driver.stream_waits[0].record == 0);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
  app.work(kU);
  CHECK(driver.waits == 2);
  CHECK(driver.stream_waits[1].stream == stream_of(kU));
}

TEST_CASE_METHOD(OrderWorld, "without a hand-out no lane waits for another") {
  app.use_and_free(kS);
  app.use_and_free(kT);
  app.use_and_free(kU);
  CHECK_FALSE(time.is_leaning());
  CHECK(driver.waits == 0);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(OrderWorld, "the lane whose own work it is does not wait") {
  for (int i = 0; i < 100; ++i) {
    REQUIRE(app.hand_out(app.use_and_free(kS)));
    app.work(kS);
  }
  CHECK(driver.waits == 0);
  app.work(kT);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "a lane waits if an older epoch that is not over has work of another lane") {
  app.use_and_free(kT);
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  app.work(kS);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == 1);
}

TEST_CASE_METHOD(OrderWorld, "a lane does not wait for older epochs that are over") {
  app.use_and_free(kT);
  const Epoch stamp = app.use_and_free(kS);
  driver.finish_oldest();
  time.advance();
  REQUIRE(app.hand_out(stamp));
  app.work(kS);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(OrderWorld, "no lane waits for work submitted after the seal") {
  const Epoch stamp = app.use_and_free(kS);
  app.work(kT);
  app.use_and_free(kT);
  REQUIRE(app.hand_out(stamp));
  app.work(kS);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(OrderWorld, "a lane that has waited waits again only for a newer hand-out") {
  const Epoch first = app.use_and_free(kS);
  const Epoch second = app.use_and_free(kS);
  REQUIRE(app.hand_out(first));
  app.work(kT);
  CHECK(driver.waits == 1);
  REQUIRE(app.hand_out(first));
  app.work(kT);
  CHECK(driver.waits == 1);
  REQUIRE(app.hand_out(second));
  app.work(kT);
  CHECK(driver.waits == 2);
  CHECK(driver.stream_waits[1].record == 1);
}

TEST_CASE_METHOD(OrderWorld, "a hand-out of an older block does not take back what a newer one asks for") {
  const Epoch first = app.use_and_free(kS);
  const Epoch second = app.use_and_free(kS);
  REQUIRE(app.hand_out(second));
  REQUIRE(app.hand_out(first));
  app.work(kT);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == 1);
}

TEST_CASE_METHOD(OrderWorld, "no lane waits for completed work, and nothing leans on it") {
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  CHECK(time.is_leaning());
  app.work(kS);
  app.finish();
  CHECK_FALSE(time.is_leaning());
  CHECK(app.hand_out(stamp));
  CHECK_FALSE(time.is_leaning());
  app.work(kT);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(OrderWorld, "many lanes each wait for themselves, however many there are") {
  const Epoch stamp = app.use_and_free(kS);
  REQUIRE(app.hand_out(stamp));
  constexpr uint64_t kLanes = 300;
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 1; i <= kLanes; ++i) app.work(Lane{0x10000 + 8 * i});
  }
  std::map<driver::Stream, int> waits;
  for (const auto& wait : driver.stream_waits) ++waits[wait.stream];
  CHECK(waits.size() == kLanes);
  CHECK(driver.orders == 0);
}

TEST_CASE_METHOD(OrderWorld,
                 "what costs streams that overlap nothing is told apart from what they wait for") {
  const Epoch first = app.use_and_free(kS);
  CHECK_FALSE(time.is_spread());
  CHECK(time.cheap() == first);
  CHECK(time.limit(order::Reach::kCheap) == first);
  const Epoch second = app.use_and_free(kT);
  CHECK(time.is_spread());
  CHECK(time.cheap() < first);
  CHECK(time.reachable() == second);
  CHECK(time.limit(order::Reach::kAll) == second);
  CHECK(time.reach());
  driver.finish_oldest();
  time.advance();
  CHECK_FALSE(time.is_spread());
  CHECK(time.cheap() == second);
}

TEST_CASE_METHOD(OrderWorld, "streams take turns when one had to wait for another more than a few times") {
  CHECK(time.lanes_in_turns() == 0);
  for (int i = 0; i < 40; ++i) {
    REQUIRE(app.hand_out(app.use_and_free(i % 2 == 0 ? kS : kT)));
    app.work(i % 2 == 0 ? kT : kS);
    if (i == 4) CHECK(time.lanes_in_turns() == 0);
  }
  CHECK(time.lanes_in_turns() == 2);
  CHECK(driver.orders == 0);
  CHECK(driver.synchronisations == 0);
}

// ---- Many seals.

namespace {

// What a pile of seals was made of.
struct Piece {
  Epoch stamp;
  size_t record;  // the event that was recorded for it
};

}  // namespace

TEST_CASE_METHOD(OrderWorld, "however many seals are under way, each block's wait covers its work") {
  std::vector<Piece> pieces;
  // The program's waits and stream-ordered frees stand between them.
  const int between = GENERATE(0, 1, 2);
  std::vector<Epoch> waits;
  const size_t count = GENERATE(1u, 3u, 16u) * order::Seals::kMost;
  for (size_t i = 0; i < count; ++i) {
    app.work(kS);
    if (between == 1 && i % 2 == 0) waits.push_back(time.begin_wait(Lane::kMany));
    if (between == 2 && i % 2 == 0) app.free_in_order();
    app.work(kS);
    const Epoch stamp = app.free_and_seal();
    pieces.push_back({stamp, driver.made.size() - 1});
  }
  for (size_t i = 0; i < pieces.size(); i += 7) {
    REQUIRE(app.hand_out(pieces[i].stamp));
    app.work(kT);
    const size_t waited_for = driver.stream_waits.back().record;
    REQUIRE(waited_for >= pieces[i].record);
    // They lose precision all along: no block's work is waited for with all that came later.
    CHECK(waited_for - pieces[i].record <= 8 * driver.made.size() / order::Seals::kMost);
  }
  // One that failed and one that did not, both merged long ago.
  if (between == 1) time.end_wait(waits[100], false);
  if (between == 1) time.end_wait(waits[101], true);
  CHECK(time.completed() < pieces.back().stamp);
  app.finish();
  CHECK(time.completed() >= pieces.back().stamp);
  CHECK_FALSE(time.is_leaning());
}

TEST_CASE_METHOD(OrderWorld,
                 "the newest seal stays to be waited for, however many epochs without one follow") {
  Epoch last = 0;
  for (size_t i = 0; i < order::Seals::kMost; ++i) last = app.use_and_free(kS);
  const size_t record = driver.made.size() - 1;
  const bool are_waits = GENERATE(true, false);
  for (int i = 0; i < 5; ++i) {
    app.work(kS);
    if (are_waits) {
      REQUIRE(time.begin_wait(Lane::kMany) != 0);
    } else {
      app.free_in_order();
    }
  }
  REQUIRE(app.hand_out(last));
  app.work(kT);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == record);
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(OrderWorld, "however many seals are under way, the oldest is known to be over when it is") {
  const Epoch first = app.use_and_free(kS);
  for (size_t i = 0; i < 3 * order::Seals::kMost; ++i) app.use_and_free(kS);
  driver.finish_oldest();
  time.advance();
  CHECK(time.completed() == first);
}

TEST_CASE_METHOD(OrderWorld, "seals that pile up still know their lanes") {
  const size_t before = GENERATE(size_t{0}, size_t{30}, order::Seals::kMost, 2 * order::Seals::kMost);
  for (size_t i = 0; i < before; ++i) app.use_and_free(kS);
  app.use_and_free(kT);
  Epoch last = 0;
  for (size_t i = 0; i < 2 * order::Seals::kMost; ++i) last = app.use_and_free(kS);
  REQUIRE(app.hand_out(last));
  app.work(kS);
  REQUIRE(driver.stream_waits.size() == 1);
  CHECK(driver.stream_waits[0].record == driver.made.size() - 1);
}

TEST_CASE_METHOD(OrderWorld, "events are used again: as many are made as are under way") {
  for (int i = 0; i < 1000; ++i) {
    app.use_and_free(kS);
    app.finish();
  }
  std::map<driver::Event, int> used;
  for (const auto& record : driver.made) ++used[record.event];
  CHECK(used.size() <= 4);
}

// The device does a few pieces of work, the program submits a few more, now and then one of them stops.
TEST_CASE_METHOD(OrderWorld, "a look finds the newest seal that is done, wherever it is, and asks for few") {
  std::mt19937 random(7);
  std::deque<Epoch> pending;
  uint64_t looks = 0;
  uint64_t before = driver.queries;
  for (int round = 0; round < 2000; ++round) {
    for (unsigned i = random() % 12; i != 0 && pending.size() < 400; --i)
      pending.push_back(app.use_and_free(kS));
    unsigned done = random() % 12;
    if (round % 50 == 49) done = random() % 400;
    Epoch newest = 0;
    for (; done != 0 && !pending.empty(); --done) {
      newest = std::max(newest, pending.front());
      pending.pop_front();
      driver.finish_oldest();
    }
    const uint64_t earlier = driver.queries;
    time.advance();
    looks += driver.queries != earlier ? 1 : 0;
    INFO("round " << round << ", " << pending.size() << " pending");
    REQUIRE(time.completed() >= newest);
    if (!pending.empty()) REQUIRE(time.completed() < pending.front());
  }
  CHECK(looks > 1000);
  CHECK(driver.queries - before < 6 * looks);
}

// ---- A driver that refuses.

TEST_CASE_METHOD(OrderWorld, "a record that fails proves nothing, and its lanes count on") {
  app.work(kT);
  driver.fail_record = driver::kNotSupported;
  const Epoch stamp = app.free_and_seal();
  app.finish();
  CHECK_FALSE(time.is_idle());
  CHECK_FALSE(app.hand_out(stamp));
  driver.fail_record = driver::kSuccess;
  const Epoch later = app.use_and_free(kS);
  CHECK(app.hand_out(stamp));
  CHECK(app.hand_out(later));
  app.work(kS);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "a submission that cannot be ordered is refused, until it can be") {
  REQUIRE(app.hand_out(app.use_and_free(kS)));
  driver.fail_wait = driver::kInvalidContext;
  CHECK_FALSE(app.submit(kT));
  CHECK(time.refusal() == driver::kInvalidContext);
  CHECK_FALSE(app.submit(kT));
  CHECK(app.submit(kS));
  driver.fail_wait = driver::kSuccess;
  CHECK(app.submit(kT));
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld, "a driver that does not answer for its events any more proves nothing") {
  const Epoch stamp = app.use_and_free(kS);
  driver.fail_query = driver::kInvalidContext;
  app.finish();
  CHECK(time.completed() < stamp);
  CHECK_FALSE(time.is_idle());
  const uint64_t before = driver.queries + driver.records;
  time.advance();
  app.use_and_free(kS);
  CHECK_FALSE(time.wait_for(stamp));
  CHECK(driver.queries + driver.records == before);
}
