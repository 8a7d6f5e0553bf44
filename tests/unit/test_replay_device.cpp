// The device of a replay (src/replay/device.hpp): when its work is done, by what the record says.
#include <catch2/catch.hpp>

#include "base/clock.hpp"
#include "replay/device.hpp"

using namespace cupool;
using driver::kNotReady;
using driver::kSuccess;

namespace {

constexpr uint64_t kStart = 1'000'000'000;
constexpr uint64_t kLongest = 250'000'000;  // that the pool waits, if it does not wait for ever

// One context whose work is never said to be done, asked about in step 5.
struct World {
  explicit World(std::vector<replay::Place::InVain> in_vain) : program(make(std::move(in_vain))) {
    set_clock(kStart);
    device.set_step(5);
    REQUIRE(device.create_event(replay::Device::context(0), &event) == kSuccess);
    REQUIRE(device.record(replay::Device::context(0), event) == kSuccess);
  }
  ~World() { set_clock(0); }

  static replay::Program make(std::vector<replay::Place::InVain> in_vain) {
    replay::Program out;
    out.knows_done = true;
    out.places[0].in_vain = std::move(in_vain);
    return out;
  }

  const replay::Program program;
  replay::Device device{program, uint64_t{1} << 30, {}};
  driver::Event event = nullptr;
};

}  // namespace

TEST_CASE("a wait that was in vain ends after as many questions as in the record, with the work pending") {
  World world({{5, 3}});
  for (int i = 0; i < 2; ++i) {
    CHECK(world.device.query(world.event) == kNotReady);
    CHECK(now_ns() == kStart);
  }
  CHECK(world.device.query(world.event) == kNotReady);
  CHECK(now_ns() > kStart + kLongest);
}

TEST_CASE("a wait that is not in the record ends with the work done, and in its time") {
  World world({{4, 3}, {6, 3}});
  int questions = 1;
  while (world.device.query(world.event) == kNotReady) ++questions;
  CHECK(questions == 1000);
  CHECK(now_ns() == kStart);
}
