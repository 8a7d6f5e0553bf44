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
#include "pool/ripe_segments.hpp"
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
  order::CaptureGate gate;
  order::Contexts contexts;
  order::Timeline time{driver, gate, contexts};
  stats::Device& device = stats::device(0);
  Ranges ranges{nullptr, device};

  Parts() {
    REQUIRE(page_map.enter(kStart, 16 * kMiB));
    ranges.add(kStart, 16 * kMiB, 0, Ranges::From::kDriver);
    time.begin(reinterpret_cast<driver::Context>(0x10));
    driver.done_at_once = false;
  }
  ~Parts() {
    const SizeClasses classes(512, 32 << 10, kGranule);
    Slabs slabs(classes);
    ranges.drop_all(slabs);
  }
  void work(order::Lane lane) {
    CHECK(time.before_submit(lane, reinterpret_cast<driver::Stream>(lane)));
    time.after_submit(lane);
  }
  void work_in_two_lanes() {
    work(order::Lane{0x1000});
    work(order::Lane{0x2000});
  }
  Range* take(uint64_t bytes, order::Reach reach = order::Reach::kCheap) {
    return ranges.take(bytes, time, reach);
  }
  Range* take_own(uint64_t bytes, order::LaneName lane) {
    return ranges.take(bytes, time, order::Reach::kOwn, lane);
  }
  void finish() {
    driver.finish();
    time.advance();
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
  Range* const first = take(kMiB);
  Range* const second = take(3 * kMiB);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK(first->start == kStart);
  CHECK(first->bytes == kMiB);
  CHECK(second->start == kStart + kMiB);
  CHECK(page_map.find(second->start) == second);
  CHECK(ranges.bytes().free() == 12 * kMiB);
  CHECK(take(13 * kMiB) == nullptr);
}

TEST_CASE_METHOD(Parts, "free neighbours become one range again, from either side") {
  for (const auto& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    std::vector<Range*> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(take(kMiB));
    for (const int i : order) ranges.give(taken[static_cast<size_t>(i)], time.open(), time);
    CHECK(ranges.figures().largest_free == 16 * kMiB);
    CHECK_FALSE(page_map.find(kStart + kMiB));
  }
}

TEST_CASE_METHOD(Parts, "the smallest range that fits is taken, of equals the lowest") {
  std::vector<Range*> taken;
  for (const uint64_t megabytes : {4, 1, 2, 1, 2, 1}) taken.push_back(take(megabytes * kMiB));
  for (const size_t i : {size_t{0}, size_t{2}, size_t{4}}) ranges.give(taken[i], time.open(), time);
  CHECK(take(kMiB)->start == kStart + 5 * kMiB);
  CHECK(take(2 * kMiB)->start == kStart + 8 * kMiB);
  CHECK(take(3 * kMiB)->start == kStart);
}

TEST_CASE_METHOD(Parts, "a range that is not yet sealed is neither handed out nor merged into one that is") {
  Range* const taken = take(4 * kMiB);
  work_in_two_lanes();
  ranges.give(taken, time.open(), time);
  CHECK(ranges.fits(16 * kMiB) == false);
  CHECK(take(12 * kMiB)->start == kStart + 4 * kMiB);
  CHECK(take(kMiB) == nullptr);
  CHECK(take(kMiB, order::Reach::kAll) == nullptr);
  CHECK(ranges.fits(kMiB));
  time.seal_in_free();
  // Streams may have to wait for it now, if that is wanted.
  CHECK(take(kMiB) == nullptr);
  Range* const leaning = take(kMiB, order::Reach::kAll);
  REQUIRE(leaning != nullptr);
  CHECK(leaning->start == kStart);
  CHECK(leaning->stamp > time.completed());
  finish();
  CHECK(take(kMiB) != nullptr);
}

TEST_CASE_METHOD(Parts, "a merged range is as new as its newest part") {
  Range* const low = take(4 * kMiB);
  Range* const high = take(12 * kMiB);
  work_in_two_lanes();
  ranges.give(high, time.open(), time);
  time.seal_in_free();
  work_in_two_lanes();
  const Epoch late = time.open();
  ranges.give(low, late, time);
  time.seal_in_free();
  CHECK(take(kMiB) == nullptr);
  Range* const merged = take(16 * kMiB, order::Reach::kAll);
  REQUIRE(merged != nullptr);
  CHECK(merged->stamp == late);
}

TEST_CASE_METHOD(Parts, "of ranges whose work is not over the one that was freed first serves first") {
  std::vector<Range*> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(take(4 * kMiB));
  for (const size_t i : {size_t{2}, size_t{0}, size_t{3}, size_t{1}}) {
    work_in_two_lanes();
    ranges.give(taken[i], time.open(), time);
    time.seal_in_free();
  }
  for (const size_t i : {size_t{2}, size_t{0}, size_t{3}, size_t{1}})
    CHECK(take(4 * kMiB, order::Reach::kAll) == taken[i]);
}

TEST_CASE_METHOD(Parts, "what one lane alone has used serves that lane first, and asks nothing of it") {
  Range* const other = take(4 * kMiB);
  Range* const own = take(4 * kMiB);
  work_in_two_lanes();
  ranges.give(other, time.open(), time, order::LaneName{1});
  ranges.give(own, time.open(), time, order::LaneName{2});
  time.seal_in_free();
  CHECK(take(4 * kMiB) == nullptr);
  CHECK(take_own(4 * kMiB, order::LaneName{3}) == nullptr);
  CHECK(take_own(4 * kMiB, order::LaneName{2}) == own);
  CHECK(take_own(4 * kMiB, order::LaneName{2}) == nullptr);
}

TEST_CASE_METHOD(Parts,
                 "where streams overlap a large block keeps a small rest, and its range serves larger ones") {
  Range* const range = take(16 * kMiB);
  work_in_two_lanes();
  ranges.give(range, time.open(), time);
  time.seal_in_free();
  CHECK(take(15 * kMiB, order::Reach::kAll) == range);
  CHECK(range->bytes == 16 * kMiB);
  work_in_two_lanes();
  ranges.give(range, time.open(), time);
  time.seal_in_free();
  CHECK(take(31 * kMiB / 2, order::Reach::kAll) == range);
  // A rest of more than a twelfth is cut off.
  work_in_two_lanes();
  ranges.give(range, time.open(), time);
  time.seal_in_free();
  CHECK(take(10 * kMiB, order::Reach::kAll)->bytes == 10 * kMiB);
}

TEST_CASE_METHOD(Parts, "a large range is not cut for a block that another one fits better") {
  Range* const small = take(4 * kMiB);
  Range* const large = take(12 * kMiB);
  ranges.give(large, time.open(), time);
  work_in_two_lanes();
  ranges.give(small, time.open(), time);
  time.seal_in_free();
  CHECK(take(4 * kMiB) == nullptr);
  CHECK(take(4 * kMiB, order::Reach::kAll) == small);
  CHECK(take(4 * kMiB) == large);
}

TEST_CASE_METHOD(Parts, "ranges freed out of order all come back once they are safe") {
  std::vector<Range*> taken;
  for (int i = 0; i < 16; ++i) taken.push_back(take(kMiB));
  work_in_two_lanes();
  const Epoch early = time.open();
  time.seal_in_free();
  work_in_two_lanes();
  const Epoch late = time.open();
  // What a thread kept for long comes after what is newer.
  for (size_t i = 0; i < 16; ++i) ranges.give(taken[i], i % 2 == 0 ? late : early, time);
  finish();
  for (int i = 0; i < 8; ++i) CHECK(take(kMiB) != nullptr);
  CHECK(take(kMiB) == nullptr);
}

TEST_CASE_METHOD(Parts, "what is cut off a range is as new as the range was") {
  Range* const all = take(16 * kMiB);
  work(order::Lane{0x1000});
  const Epoch stamp = time.open();
  ranges.give(all, stamp, time);
  time.seal_in_free();
  // All work is in one lane.
  Range* const cut = take(kMiB);
  REQUIRE(cut != nullptr);
  CHECK(cut->stamp == stamp);
  work_in_two_lanes();
  CHECK(take(kMiB) == nullptr);
  finish();
  CHECK(take(kMiB) != nullptr);
}

TEST_CASE_METHOD(Parts, "what is taken while no work is under way is over, and so is what is cut off it") {
  ranges.give(take(16 * kMiB), time.open(), time);
  Range* const cut = take(kMiB);
  REQUIRE(cut != nullptr);
  CHECK(cut->stamp == 0);
  work_in_two_lanes();
  Range* const rest = take(kMiB);
  REQUIRE(rest != nullptr);
  CHECK(rest->stamp == 0);
}

TEST_CASE_METHOD(Parts, "a whole free segment leaves with its pages, one in use stays") {
  Range* const taken = take(kMiB);
  CHECK(ranges.detach() == nullptr);
  ranges.give(taken, 0, time);
  Segment* const segment = ranges.detach();
  REQUIRE(segment != nullptr);
  CHECK(segment->bytes == 16 * kMiB);
  CHECK_FALSE(page_map.is_ours(kStart));
  CHECK(ranges.bytes().reserved() == 0);
  CHECK(ranges.bytes().free() == 0);
  ranges.forget(segment);
}

TEST_CASE_METHOD(Parts, "ranges above the split limit serve only what is itself above it") {
  ranges.set_split_limit(2 * kMiB);
  CHECK(take(kMiB) == nullptr);
  CHECK(take(3 * kMiB) != nullptr);
}

TEST_CASE_METHOD(Parts, "of tainted segments that are free the one with the oldest work goes first") {
  RangeTable::Counts counts;
  RangeTable table(nullptr, device, counts);
  RipeSegments ripe;
  std::vector<Segment*> segments;
  for (const order::Epoch stamp : {2, 5, 3, 9, 1}) {
    const Address start = kStart + 16 * kMiB + segments.size() * kPageBytes;
    REQUIRE(page_map.enter(start, kPageBytes));
    Range* const range = table.add(start, kPageBytes, {.is_mapped = true});
    range->stamp = stamp;
    segments.push_back(range->segment);
    table.list_last(segments.back());
    ripe.add(segments.back());
  }
  CHECK(table.first_segment() == segments.front());
  CHECK(ripe.oldest(false) == nullptr);
  std::vector<order::Epoch> gone;
  while (Segment* const segment = ripe.oldest(true)) {
    gone.push_back(segment->lowest()->stamp);
    ripe.remove(segment);
    table.unlist(segment);
  }
  CHECK(gone == std::vector<order::Epoch>{1, 2, 3, 5, 9});
  CHECK(table.first_segment() == nullptr);
  page_map.remove(kStart + 16 * kMiB, segments.size() * kPageBytes);
}

// ---- Slabs.

TEST_CASE_METHOD(Parts, "the record of a full slab serves again after its context has ended") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  Slabs slabs(sizes);
  const unsigned size_class = sizes.of(kKiB);
  std::vector<Entry> entries(64);
  const Slab* first = nullptr;
  for (int context = 0; context < 3; ++context) {
    Range* const range = take(32 * kKiB);
    REQUIRE(slabs.add(size_class, range, entries.size(), entries.data()) == 32);
    const Slab* const slab = range->slab.load();
    if (context == 0) first = slab;
    CHECK(slab == first);
    CHECK(slab->pending_frees.load() == 0);
    slab->pending_frees.store(1);
    entries[0].tag->store(1);
    slabs.drop_all();
    ranges.drop_all(slabs);
    CHECK(range->slab.load() == nullptr);
    REQUIRE(page_map.enter(kStart, 16 * kMiB));
    ranges.add(kStart, 16 * kMiB, 0, Ranges::From::kDriver);
  }
}

TEST_CASE_METHOD(Parts, "a slab gives each of its blocks once and takes them back once") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  Slabs slabs(sizes);
  for (const uint64_t bytes : {uint64_t{512}, uint64_t{1536}, 9 * kKiB, 32 * kKiB}) {
    const unsigned size_class = sizes.of(bytes);
    Range* const range = take(slabs.slab_bytes(size_class));
    const uint64_t blocks = range->bytes / bytes;
    std::vector<Entry> entries(blocks + 1);
    size_t taken = slabs.add(size_class, range, 3, entries.data());
    CHECK(taken == 3);
    taken += slabs.take(size_class, blocks, time, order::Reach::kCheap, entries.data() + taken);
    CHECK(taken == blocks);
    CHECK(slabs.take(size_class, 1, time, order::Reach::kCheap, entries.data() + taken) == 0);
    std::set<Address> starts;
    for (size_t i = 0; i < taken; ++i) starts.insert(entries[i].start());
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
  Range* const range = ranges.add(kStart + 16 * kMiB, 32 * kMiB, 32 * kMiB, Ranges::From::kDriver);
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
  Range* const range = take(slabs.slab_bytes(0));
  Entry entries[4];
  REQUIRE(slabs.add(0, range, 4, entries) == 4);
  work_in_two_lanes();
  entries[0].stamp = time.open();
  entries[1].stamp = 0;
  Range* emptied = nullptr;
  slabs.give(0, entries, 2, &emptied);
  const Epoch stamp = time.open();
  CHECK(slabs.take(0, 1, time, order::Reach::kAll, entries) == 0);
  time.seal_in_free();
  CHECK(slabs.take(0, 1, time, order::Reach::kCheap, entries) == 0);
  REQUIRE(slabs.take(0, 1, time, order::Reach::kAll, entries) == 1);
  CHECK(entries[0].stamp == stamp);
  finish();
  CHECK(slabs.take(0, 1, time, order::Reach::kCheap, entries) == 1);
}

TEST_CASE_METHOD(Parts, "a new slab is as new as the range it is made of") {
  const SizeClasses sizes(512, 32 * kKiB, 16 * kKiB);
  Slabs slabs(sizes);
  Range* const all = take(16 * kMiB);
  work(order::Lane{0x1000});
  ranges.give(all, time.open(), time);
  time.seal_in_free();
  Range* const range = take(slabs.slab_bytes(0));
  REQUIRE(range != nullptr);
  work_in_two_lanes();
  Entry entries[2];
  REQUIRE(slabs.add(0, range, 1, entries) == 1);
  CHECK(entries[0].stamp > time.cheap());
  CHECK(slabs.take(0, 1, time, order::Reach::kCheap, entries + 1) == 0);
}
