// The parts of the pool, each alone: size classes for every setting the options allow, bins, the page map,
// ranges that are split and merged, slabs.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "config/parse.hpp"
#include "fake_driver.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"
#include "pool/ranges.hpp"
#include "pool/settings.hpp"
#include "pool/slabs.hpp"

using namespace cupool;
using namespace cupool::pool;

namespace {

constexpr Address kStart = 0x7e0000000000;

config::Options read(const std::vector<std::string>& entries) {
  std::vector<const char*> pointers;
  for (const std::string& entry : entries) pointers.push_back(entry.c_str());
  pointers.push_back(nullptr);
  return config::read_environment(pointers.data(), [](const char*) {});
}

// One segment of 16 MiB whose ranges a test takes and gives back.
struct Parts {
  test::FakeDriver driver;
  order::Timeline time{&driver};
  stats::Device& device = stats::device(0);
  Ranges ranges{nullptr, device};

  Parts() {
    REQUIRE(page_map.enter(kStart, 16 * kMiB));
    ranges.add(kStart, 16 * kMiB, 0);
    time.join(reinterpret_cast<driver::Context>(0x10));
    driver.done_at_once = false;
  }
  ~Parts() { ranges.drop_all(); }
  void work(order::Lane lane) {
    CHECK(time.before_submit(lane));
    time.after_submit(lane);
  }
};

}  // namespace

// ---- Size classes.

TEST_CASE("every class holds what it is asked for, whatever the options say") {
  for (const char* min_block : {"512", "1K", "4K", "16K"}) {
    for (const char* small_limit : {"512", "32K", "256K"}) {
      for (const char* large_round : {"16K", "512K", "2M", "32M"}) {
        CAPTURE(min_block, small_limit, large_round);
        const auto options = read({std::string("CUPOOL_MIN_BLOCK=") + min_block,
                                   std::string("CUPOOL_SMALL_LIMIT=") + small_limit,
                                   std::string("CUPOOL_LARGE_ROUND=") + large_round});
        const Settings settings = Settings::from(options, 80 * kGiB);
        const SizeClasses sizes(settings.min_block, settings.small_limit, settings.large_round);
        for (uint64_t bytes = 1; bytes <= 3 * kMiB; bytes += bytes < 70000 ? 61 : 8191) {
          const unsigned size_class = sizes.of(bytes);
          if (size_class == kNotKept) continue;
          if (size_class >= SizeClasses::kMostClasses) FAIL("a class beyond the last");
          if (sizes.bytes(size_class) < bytes) FAIL("a block smaller than what was asked for");
          if (sizes.bytes(size_class) % 512 != 0) FAIL("blocks that are not aligned");
          // A slab keeps the slack of each block in a tag beside its mark.
          if (sizes.is_small(size_class) && sizes.bytes(size_class) - bytes + 1 >= kMarkedTag)
            FAIL("too much slack");
        }
      }
    }
  }
}

TEST_CASE("a small block wastes at most an eighth beyond the smallest sizes") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  for (uint64_t bytes = 4096; bytes <= 32 * kKiB; ++bytes) {
    if (sizes.bytes(sizes.of(bytes)) > bytes + bytes / 8 + 1) FAIL("more than an eighth");
  }
}

// ---- The page map.

TEST_CASE("the page map finds what was entered, refuses a page twice and forgets what was removed") {
  CHECK_FALSE(page_map.is_ours(kStart));
  REQUIRE(page_map.enter(kStart, 4 * kMiB));
  CHECK(page_map.is_ours(kStart + 4 * kMiB - 1));
  CHECK_FALSE(page_map.is_ours(kStart + 4 * kMiB));
  // Half of it overlaps: nothing may stay behind.
  CHECK_FALSE(page_map.enter(kStart - 2 * kMiB, 4 * kMiB));
  CHECK_FALSE(page_map.is_ours(kStart - 2 * kMiB));
  page_map.remove(kStart, 4 * kMiB);
  CHECK_FALSE(page_map.is_ours(kStart));
  CHECK_FALSE(page_map.enter(uint64_t{1} << 49, 2 * kMiB));
}

// ---- Ranges.

TEST_CASE_METHOD(Parts, "a range is cut to size, and the rest serves others") {
  Range* const first = ranges.take(kMiB, time);
  Range* const second = ranges.take(3 * kMiB, time);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK(first->start == kStart);
  CHECK(first->bytes == kMiB);
  CHECK(second->start == kStart + kMiB);
  CHECK(page_map.find(second->start) == second);
  CHECK(ranges.free_bytes() == 12 * kMiB);
  CHECK(ranges.take(13 * kMiB, time) == nullptr);
}

TEST_CASE_METHOD(Parts, "free neighbours become one range again, from either side") {
  REQUIRE(time.request_grant());
  for (const auto& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    std::vector<Range*> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(ranges.take(kMiB, time));
    for (const int i : order) ranges.give(taken[static_cast<size_t>(i)], time.open(), time);
    CHECK(ranges.figures().largest_free == 16 * kMiB);
    CHECK_FALSE(page_map.find(kStart + kMiB));
  }
}

TEST_CASE_METHOD(Parts, "the smallest range that fits is taken, of equals the lowest") {
  REQUIRE(time.request_grant());
  std::vector<Range*> taken;
  for (const uint64_t megabytes : {4, 1, 2, 1, 2, 1}) taken.push_back(ranges.take(megabytes * kMiB, time));
  for (const size_t i : {size_t{0}, size_t{2}, size_t{4}}) ranges.give(taken[i], time.open(), time);
  CHECK(ranges.take(kMiB, time)->start == kStart + 5 * kMiB);
  CHECK(ranges.take(2 * kMiB, time)->start == kStart + 8 * kMiB);
  CHECK(ranges.take(3 * kMiB, time)->start == kStart);
}

TEST_CASE_METHOD(Parts, "a range that is not yet safe is neither handed out nor merged into one that is") {
  Range* const taken = ranges.take(4 * kMiB, time);
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  ranges.give(taken, time.open(), time);
  CHECK(ranges.fits(16 * kMiB) == false);
  CHECK(ranges.take(12 * kMiB, time)->start == kStart + 4 * kMiB);
  CHECK(ranges.take(kMiB, time) == nullptr);
  CHECK(ranges.fits(kMiB));
  REQUIRE(time.barrier());
  CHECK(ranges.take(kMiB, time)->start == kStart);
}

TEST_CASE_METHOD(Parts, "a merged range is as new as its newest part") {
  REQUIRE(time.request_grant());
  Range* const low = ranges.take(4 * kMiB, time);
  Range* const high = ranges.take(12 * kMiB, time);
  ranges.give(low, time.open(), time);
  REQUIRE(time.barrier());
  ranges.give(high, time.open(), time);
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  CHECK(ranges.take(kMiB, time) == nullptr);
  REQUIRE(time.barrier());
  CHECK(ranges.take(16 * kMiB, time) != nullptr);
}

TEST_CASE_METHOD(Parts, "ranges freed out of order all come back once they are safe") {
  std::vector<Range*> taken;
  for (int i = 0; i < 16; ++i) taken.push_back(ranges.take(kMiB, time));
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  const Epoch early = time.open();
  time.advance(true);
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  const Epoch late = time.open();
  // What a thread kept for long comes after what is newer.
  for (size_t i = 0; i < 16; ++i) ranges.give(taken[i], i % 2 == 0 ? late : early, time);
  driver.finish();
  time.advance(false);
  for (int i = 0; i < 8; ++i) CHECK(ranges.take(kMiB, time) != nullptr);
  CHECK(ranges.take(kMiB, time) == nullptr);
}

TEST_CASE_METHOD(Parts, "what is cut off a range is as new as the range was") {
  REQUIRE(time.request_grant());
  ranges.give(ranges.take(16 * kMiB, time), time.open(), time);
  REQUIRE(ranges.take(kMiB, time) != nullptr);
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  CHECK(ranges.take(kMiB, time) == nullptr);
  REQUIRE(time.barrier());
  CHECK(ranges.take(kMiB, time) != nullptr);
}

TEST_CASE_METHOD(Parts, "a whole free segment leaves with its pages, one in use stays") {
  Range* const taken = ranges.take(kMiB, time);
  CHECK(ranges.detach() == nullptr);
  ranges.give(taken, 0, time);
  CHECK(ranges.detach(kMiB) == nullptr);
  Segment* const segment = ranges.detach();
  REQUIRE(segment != nullptr);
  CHECK(segment->bytes == 16 * kMiB);
  CHECK_FALSE(page_map.is_ours(kStart));
  CHECK(ranges.reserved() == 0);
  CHECK(ranges.free_bytes() == 0);
  ranges.forget(segment);
}

TEST_CASE_METHOD(Parts, "ranges above the split limit serve only what is itself above it") {
  ranges.set_split_limit(2 * kMiB);
  CHECK(ranges.take(kMiB, time) == nullptr);
  CHECK(ranges.take(3 * kMiB, time) != nullptr);
}

// ---- Slabs.

TEST_CASE_METHOD(Parts, "a slab gives each of its blocks once and takes them back once") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  Slabs slabs(sizes);
  for (const uint64_t bytes : {uint64_t{512}, uint64_t{1536}, 9 * kKiB, 32 * kKiB}) {
    const unsigned size_class = sizes.of(bytes);
    Range* const range = ranges.take(slabs.slab_bytes(size_class), time);
    const uint64_t blocks = range->bytes / bytes;
    std::vector<Entry> entries(blocks + 1);
    size_t taken = slabs.add(size_class, range, 3, entries.data());
    CHECK(taken == 3);
    taken += slabs.take(size_class, blocks, time, entries.data() + taken);
    CHECK(taken == blocks);
    CHECK(slabs.take(size_class, 1, time, entries.data() + taken) == 0);
    std::set<Address> starts;
    for (size_t i = 0; i < taken; ++i) starts.insert(entries[i].address);
    CHECK(starts.size() == blocks);
    CHECK(*starts.begin() == range->start);
    CHECK(*starts.rbegin() + bytes <= range->end());
    // The last one makes it a plain range again.
    Range* emptied = nullptr;
    CHECK(slabs.give(size_class, entries.data(), taken - 1, &emptied) == taken - 1);
    CHECK(emptied == nullptr);
    CHECK(slabs.give(size_class, entries.data() + taken - 1, 1, &emptied) == 1);
    CHECK(emptied == range);
    CHECK(range->slab.load() == nullptr);
    CHECK(page_map.find(range->start) == range);
    CHECK_FALSE(page_map.find(range->start + kGranule));
    ranges.give(range, 0, time);
  }
}

TEST_CASE_METHOD(Parts,
                 "a range too large for a slab's record becomes a slab of as many blocks as one holds") {
  // Without host memory for the rest's record a range comes as it is.
  const SizeClasses classes(512, 32 << 10, kGranule);
  Slabs slabs(classes);
  REQUIRE(page_map.enter(kStart + 16 * kMiB, 32 * kMiB));
  Range* const range = ranges.add(kStart + 16 * kMiB, 32 * kMiB, 32 * kMiB);
  Entry entry;
  REQUIRE(slabs.add(classes.of(512), range, 1, &entry) == 1);
  const Slab* const slab = range->slab.load();
  CHECK(slab->blocks == 1 << 15);
  CHECK(slab->index_of(range->start + 512 * ((1 << 15) - 1)) == (1 << 15) - 1);
  CHECK(slab->index_of(range->start + 512 * (1 << 15)) == slab->blocks);
}

TEST_CASE_METHOD(Parts, "a slab is as new as the newest block given back to it") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  Slabs slabs(sizes);
  Range* const range = ranges.take(slabs.slab_bytes(0), time);
  Entry entries[4];
  REQUIRE(slabs.add(0, range, 4, entries) == 4);
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  entries[0].stamp = time.open();
  entries[1].stamp = 0;
  Range* emptied = nullptr;
  slabs.give(0, entries, 2, &emptied);
  CHECK(slabs.take(0, 1, time, entries) == 0);
  REQUIRE(time.barrier());
  CHECK(slabs.take(0, 1, time, entries) == 1);
}

TEST_CASE_METHOD(Parts, "a new slab is as new as the range it is made of") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  Slabs slabs(sizes);
  REQUIRE(time.request_grant());
  ranges.give(ranges.take(16 * kMiB, time), time.open(), time);
  Range* const range = ranges.take(slabs.slab_bytes(0), time);
  work(order::Lane{0x1000});
  work(order::Lane{0x2000});
  Entry entries[2];
  REQUIRE(slabs.add(0, range, 1, entries) == 1);
  CHECK_FALSE(time.is_safe(entries[0].stamp));
  CHECK(slabs.take(0, 1, time, entries + 1) == 0);
}
