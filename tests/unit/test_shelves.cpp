// What a thread keeps, alone: shelves of freed blocks, and what it has freed a moment ago.
#include <array>
#include <catch2/catch.hpp>

#include "config/parse.hpp"
#include "pool/recent_frees.hpp"
#include "pool/shelves.hpp"

using namespace cupool;
using namespace cupool::pool;

namespace {

config::Options defaults() {
  const char* const nothing[] = {nullptr};
  return config::read_environment(nothing, [](const char*) {});
}

struct Kept {
  Settings settings = Settings::from(defaults(), 16 * kGiB);
  SizeClasses sizes{512, 32 << 10, kGranule};
  Shelves shelves{sizes, settings};
  const unsigned small = sizes.of(1024);
  const unsigned range = sizes.of(kMiB);

  static Entry entry(Address address, Epoch stamp) { return {address, nullptr, stamp, nullptr}; }
  Address take(unsigned size_class, Epoch limit) {
    Entry out{};
    return shelves.take(size_class, limit, &out) ? out.address : 0;
  }
  uint32_t fill(unsigned size_class) {
    uint32_t count = 0;
    while (shelves.put_more(size_class, entry(count + 1, count + 1), true)) ++count;
    return count;
  }
};

}  // namespace

TEST_CASE_METHOD(Kept, "while work is pending a shelf gives its oldest block, and only one that may go out") {
  REQUIRE(shelves.prepare(small) != 0);
  for (Epoch i = 1; i <= 3; ++i) REQUIRE(shelves.put(small, entry(100 + i, i)));
  CHECK(take(small, 0) == 0);
  CHECK(take(small, 2) == 101);
  CHECK(take(small, 2) == 102);
  CHECK(take(small, 2) == 0);
  CHECK(take(small, 3) == 103);
  CHECK(shelves.are_empty());
}

TEST_CASE_METHOD(Kept, "while none is pending it gives the newest, which leans on nothing") {
  REQUIRE(shelves.prepare(small) != 0);
  REQUIRE(shelves.put(small, entry(101, 1)));
  REQUIRE(shelves.put(small, entry(102, 2)));
  Entry out{};
  REQUIRE(shelves.take(small, order::kAnyStamp, &out));
  CHECK(out.address == 102);
  CHECK(out.stamp == 0);
}

TEST_CASE_METHOD(Kept, "blocks fetched from a slab stand before those that the thread freed") {
  REQUIRE(shelves.prepare(small) != 0);
  REQUIRE(shelves.put(small, entry(103, 5)));
  const std::array fetched{entry(101, 1), entry(102, 2)};
  shelves.put_oldest(small, fetched.data(), fetched.size());
  std::array<Entry, Shelves::kMostMoved> out;
  REQUIRE(shelves.remove_oldest(small, 1, out.data()) == 2);
  CHECK(out[0].address == 101);
  CHECK(out[1].address == 102);
  CHECK(take(small, 5) == 103);
}

TEST_CASE_METHOD(Kept, "a full shelf of ranges is widened and keeps its order, one of small blocks is not") {
  REQUIRE(shelves.prepare(range) != 0);
  CHECK_FALSE(shelves.widen(range));
  const uint32_t room = fill(range);
  REQUIRE(room == shelves.of(range).room);
  CHECK(shelves.widen(range));
  CHECK(shelves.of(range).room == 2 * room);
  CHECK(shelves.put_more(range, entry(room + 1, room + 1), true));
  for (Address i = 1; i <= room + 1; ++i) REQUIRE(take(range, room + 1) == i);
  REQUIRE(shelves.prepare(small) != 0);
  fill(small);
  CHECK_FALSE(shelves.widen(small));
}

TEST_CASE_METHOD(Kept, "what is to give way is another shelf of the same kind that has blocks") {
  const unsigned other = sizes.of(2048);
  REQUIRE(shelves.prepare(small) != 0);
  REQUIRE(shelves.prepare(other) != 0);
  CHECK(shelves.next_to_empty(small) == kNotKept);
  REQUIRE(shelves.put(other, entry(101, 1)));
  CHECK(shelves.next_to_empty(small) == other);
  CHECK(shelves.next_to_empty(range) == kNotKept);
}

TEST_CASE("a seal is due when a thread has freed often or much in one epoch") {
  RecentFrees frees;
  CHECK_FALSE(frees.seal_is_due(1, 10, 3, 100));
  CHECK_FALSE(frees.seal_is_due(1, 10, 3, 100));
  CHECK(frees.seal_is_due(1, 10, 3, 100));
  CHECK_FALSE(frees.seal_is_due(2, 10, 3, 100));
  CHECK(frees.seal_is_due(2, 90, 3, 100));
}
