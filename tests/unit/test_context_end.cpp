// The end of a context as its residents see it: who is told what, and when.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "context/endings.hpp"

using namespace cupool;

namespace {

const auto kContext = reinterpret_cast<driver::Context>(0x10);

// Writes down what it is told; a thread is in it for as many questions as the test says.
struct Listener final : context::Resident {
  explicit Listener(std::vector<std::string>& all) : heard(all) {}

  void shut(driver::Context) override { heard.emplace_back("shut"); }
  bool is_in_use(driver::Context) override {
    heard.emplace_back("asked");
    return uses-- > 0;
  }
  void begin_end(driver::Context, uint64_t number) override {
    heard.emplace_back("begin");
    ending = number;
  }
  void ended(uint64_t number, bool gone) override {
    heard.emplace_back(number == ending && gone ? "gone" : "kept");
  }

  std::vector<std::string>& heard;
  int uses = 0;
  uint64_t ending = 0;
};

struct EndWorld {
  context::InFlight in_flight;
  context::Endings endings{in_flight};
  std::vector<std::string> heard;
  Listener first{heard};
  Listener second{heard};

  uint64_t begin() {
    return endings.begin(kContext, [&](auto&& tell) { (tell(first), tell(second)); });
  }
  void finish(uint64_t ending, bool gone) {
    endings.finish(kContext, ending, gone, [&](auto&& tell) { (tell(first), tell(second)); });
  }
  bool is_open() {
    const context::InFlight::Call call(in_flight, kContext, context::InFlight::Kind::kUse);
    return call.is_open();
  }
};

using Heard = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(EndWorld,
                 "nobody drops memory of an ending context before all are shut and none is in use") {
  second.uses = 2;
  CHECK(begin() != 0);
  CHECK(heard ==
        Heard{"shut", "shut", "asked", "asked", "asked", "asked", "asked", "asked", "begin", "begin"});
}

TEST_CASE_METHOD(EndWorld, "no call begins in an ending context until the driver has answered") {
  CHECK(is_open());
  const uint64_t ending = begin();
  CHECK_FALSE(is_open());
  finish(ending, false);
  CHECK(is_open());
  CHECK(heard.back() == "kept");
}

TEST_CASE_METHOD(EndWorld, "each end of a context has a number of its own, and residents hear it twice") {
  const uint64_t one = begin();
  finish(one, true);
  CHECK(heard.back() == "gone");
  const uint64_t another = begin();
  CHECK(another > one);
  CHECK(first.ending == another);
  finish(another, true);
}

TEST_CASE_METHOD(EndWorld, "an end that nobody was told of is no news to residents") {
  finish(0, true);
  CHECK(heard.empty());
}

TEST_CASE_METHOD(EndWorld,
                 "a release that outlasts a thread's wait is not waited for again, but a newer one is") {
  using Call = context::InFlight::Call;
  constexpr uint64_t kMoment = 100'000;
  const Call old(in_flight, kContext, context::InFlight::Kind::kRelease, 0);
  CHECK(in_flight.wait_for_releases(0, kMoment));
  CHECK_FALSE(in_flight.wait_for_releases(0, kMoment));
  const Call newer(in_flight, kContext, context::InFlight::Kind::kRelease, 0);
  CHECK(in_flight.wait_for_releases(0, kMoment));
  CHECK_FALSE(in_flight.wait_for_releases(0, kMoment));
}
