// A block that one lane alone has used asks nothing of that lane: turns, demands, and the guess which lane
// comes next.
#include <array>

#include "order/lane_guess.hpp"
#include "order_world.hpp"

using namespace cupool;
using namespace cupool::test;
using order::Epoch;
using order::Lane;
using order::LaneGuess;
using order::LaneName;
using order::Turns;

namespace {

constexpr LaneName kNobody = LaneName::kNone;

// What a pool does with a guess, for a program of several threads.
class Guessed {
 public:
  explicit Guessed(Lane first) { work(first); }
  // Whether the lane that will use the block was foreseen.
  bool foresees(uint64_t bytes, Lane next, uint64_t thread = 0) {
    const Turns::Present present = turns_.present();
    const LaneName guess = guesses_.guess(bytes, present, mark(thread));
    if (guess != present.name && present.name != kNobody) turns_.leave_open();
    return guess == turns_.find(next);
  }
  void work(Lane lane, uint64_t thread = 0) {
    ++work_[thread];
    if (!turns_.has(lane)) turns_.change(lane, mark(thread));
  }

 private:
  uint64_t mark(uint64_t thread) const { return (thread << 40) + work_[thread]; }

  Turns turns_;
  LaneGuess guesses_;
  std::array<uint64_t, 2> work_{};
};

constexpr int kSteps = 20;
constexpr int kLearnt = 3;  // from this step on all is foreseen

}  // namespace

TEST_CASE_METHOD(OrderWorld, "a block that was taken and freed in one lane's turn is that lane's own") {
  app.work(kT);
  app.work(kS);
  const uint64_t taken = time.turns().now();
  app.work(kS);
  app.work(kS);
  CHECK(time.sole_since(taken) != kNobody);
  CHECK(time.sole_since(taken) == time.turns().name());
}

TEST_CASE_METHOD(OrderWorld, "work in another lane between its allocation and free makes it no lane's own") {
  app.work(kS);
  const uint64_t taken = time.turns().now();
  app.work(kT);
  CHECK(time.sole_since(taken) == kNobody);
  app.work(kS);
  CHECK(time.sole_since(taken) == kNobody);
}

TEST_CASE_METHOD(OrderWorld, "a seal or a wait of the program ends no turn") {
  app.work(kS);
  const uint64_t taken = time.turns().now();
  app.free_and_seal();
  app.work(kS);
  app.wait(Lane::kMany, true);
  app.work(kS);
  CHECK(time.sole_since(taken) != kNobody);
}

TEST_CASE_METHOD(OrderWorld, "a turn that was left open is that of the lane that is given work next") {
  app.work(kS);
  const LaneName before = time.turns().name();
  time.leave_turn_open();
  const uint64_t taken = time.turns().now();
  CHECK(time.sole_since(taken) == kNobody);
  app.work(kT);
  CHECK(time.sole_since(taken) != kNobody);
  CHECK(time.sole_since(taken) != before);
}

TEST_CASE_METHOD(OrderWorld, "where work may be unseen no block is a lane's own") {
  app.work(kS);
  const uint64_t taken = time.turns().now();
  time.expect_untracked_work();
  CHECK(time.sole_since(taken) == kNobody);
}

TEST_CASE_METHOD(OrderWorld, "a lane waits for what others did alone, and not for its own") {
  app.work(kT);
  app.work(kS);
  const LaneName own = time.turns().name();
  const Epoch stamp = app.free_and_seal();
  time.lean_on(stamp, kSomeBlock, own);
  CHECK(time.is_leaning());
  app.work(kS);
  CHECK(driver.waits == 0);
  app.work(kT);
  REQUIRE(driver.waits == 1);
  CHECK(driver.stream_waits[0].stream == stream_of(kT));
}

TEST_CASE_METHOD(OrderWorld, "a lane that need not wait for its own waits for an older block that is not") {
  app.work(kT);
  const Epoch older = app.free_and_seal();
  app.work(kS);
  const LaneName own = time.turns().name();
  const Epoch newer = app.free_and_seal();
  time.lean_on(newer, kSomeBlock, own);
  app.work(kS);
  REQUIRE(driver.waits == 0);
  time.lean_on(older, kSomeBlock);
  app.work(kS);
  CHECK(driver.waits == 1);
}

TEST_CASE_METHOD(OrderWorld,
                 "a stream that comes back under a destroyed one's handle has nothing of its own") {
  app.work(kT);
  app.work(kS);
  const uint64_t taken = time.turns().now();
  const LaneName own = time.turns().name();
  const Epoch stamp = app.free_and_seal();
  time.destroy_stream(kS);
  CHECK(time.sole_since(taken) == kNobody);
  time.lean_on(stamp, kSomeBlock, own);
  app.work(kS);
  CHECK(driver.waits == 1);
  CHECK(time.turns().name() != own);
}

TEST_CASE_METHOD(OrderWorld, "what more lanes did alone than can be told apart is asked of everyone") {
  std::vector<std::pair<Epoch, LaneName>> blocks;
  for (uint64_t i = 1; i <= 6; ++i) {
    app.work(Lane{0x1000 * i});
    const LaneName name = time.turns().name();
    blocks.emplace_back(app.free_and_seal(), name);
  }
  for (const auto& [stamp, name] : blocks) time.lean_on(stamp, kSomeBlock, name);
  // The last one leant on is the newest, so all others are older and are waited for with it.
  app.work(Lane{0x1000 * 6});
  CHECK(driver.waits == 1);
  app.work(Lane{0x1000});
  CHECK(driver.waits == 2);
}

TEST_CASE_METHOD(OrderWorld, "when all that was asked for is over no lane asks any more") {
  app.work(kT);
  app.work(kS);
  time.lean_on(app.free_and_seal(), kSomeBlock, time.turns().name());
  app.finish();
  CHECK_FALSE(time.is_leaning());
  app.work(kT);
  CHECK(driver.waits == 0);
}

TEST_CASE_METHOD(OrderWorld, "lanes that take over all the time to no use are not watched any longer") {
  for (int i = 0; i < 5000; ++i) app.work(i % 2 == 0 ? kS : kT);
  const uint64_t taken = time.turns().now();
  app.work(kS);
  app.work(kS);
  CHECK(time.sole_since(taken) == kNobody);
}

TEST_CASE("a program that repeats itself is predicted, also across streams") {
  Guessed program(kS);
  int wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    // Two blocks for the side stream, then five for the main one.
    for (int i = 0; i < 7; ++i) {
      const Lane next = i < 2 ? kT : kS;
      wrong += !program.foresees(64 << 20, next) && step >= kLearnt;
      program.work(next);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("blocks that are allocated together are predicted together") {
  Guessed program(kS);
  int wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (const Lane next : {kT, kS}) {
      for (uint64_t i = 1; i <= 3; ++i) wrong += !program.foresees(i << 20, next) && step >= kLearnt;
      program.work(next);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("many places of a program are foreseen side by side") {
  constexpr uint64_t kPlaces = 120;
  Guessed program(kS);
  int wrong = 0;
  // The streams take turns at every block, so that a guess that was pushed out is a wrong one.
  for (int step = 0; step < kSteps; ++step) {
    for (uint64_t i = 1; i <= kPlaces; ++i) {
      const Lane next = i % 2 == 0 ? kT : kS;
      const uint64_t bytes = (i * i * i + 17) << 12;  // some share an entry
      wrong += !program.foresees(bytes, next) && step >= kLearnt;
      program.work(next);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the last block of a turn is not taken for one of the next turn") {
  const uint64_t thread = GENERATE(0, 1);
  Guessed program(kS);
  int wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    wrong += !program.foresees(128 << 20, kS, thread) && step >= kLearnt;
    program.work(kS, thread);
    // The side stream's first block is one that its thread keeps: nobody asks.
    program.work(kT);
    wrong += !program.foresees(64 << 20, kT) && step >= kLearnt;
    program.work(kT);
    program.work(kS);
  }
  CHECK(wrong == 0);
}
