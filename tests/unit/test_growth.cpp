// The policy by which a pool grows, asked directly: no pool, no driver.
#include <catch2/catch.hpp>

#include "base/bytes.hpp"
#include "pool/growth.hpp"

namespace cupool::pool::growth {
namespace {

const Settings kSettings;

TEST_CASE("a large block gets a segment of its own size, small ones share one") {
  CHECK(segment_bytes(kSettings, {}, 100 * kMiB, false) == 100 * kMiB);
  CHECK(segment_bytes(kSettings, {}, 100 * kMiB + 1, false) == 102 * kMiB);
  CHECK(segment_bytes(kSettings, {}, 64 << 10, true) == 2 * kMiB);
  CHECK(segment_bytes(kSettings, {.for_small = 160 * kMiB}, 64 << 10, true) == 20 * kMiB);
}

TEST_CASE("segments grow slowly with what is reserved") {
  const Figures little{.usable = 1 << 30, .taken = 1 << 30};
  const Figures much{.usable = uint64_t{16} << 30, .taken = uint64_t{16} << 30};
  Settings settings;
  settings.segment_max = ~uint64_t{0};
  const uint64_t few = segment_bytes(settings, little, 12 * kMiB, false);
  const uint64_t many = segment_bytes(settings, much, 12 * kMiB, false);
  CHECK(few > 20 * kMiB);
  // With the square root: 16 times as much, segments four times as large.
  CHECK(many > 3 * few);
  CHECK(many < 5 * few);
}

TEST_CASE("once half of the device is taken a block gets no more than it needs") {
  Figures figures{.reserved = 512 * kMiB, .usable = 512 * kMiB, .taken = 512 * kMiB, .most = 1024 * kMiB};
  CHECK(segment_bytes(kSettings, figures, 5 * kMiB, false) > 20 * kMiB);
  figures.reserved += 2 * kMiB;
  CHECK(segment_bytes(kSettings, figures, 5 * kMiB, false) == 6 * kMiB);
}

TEST_CASE("a device is crowded when the program and the pieces between its blocks leave little of it") {
  Figures figures{.reserved = 900 * kMiB, .apart = 800 * kMiB, .in_holes = 20 * kMiB, .most = 1024 * kMiB};
  CHECK_FALSE(is_crowded(figures, 50 * kMiB));
  figures.in_holes = 40 * kMiB;
  CHECK(is_crowded(figures, 50 * kMiB));
  // What lies free in whole segments can go back.
  figures.apart = 600 * kMiB;
  CHECK_FALSE(is_crowded(figures, 50 * kMiB));
  figures.full_at = 1000 * kMiB;
  CHECK(is_crowded(figures, 50 * kMiB));
  figures.reserved = 500 * kMiB;
  CHECK_FALSE(is_crowded(figures, 50 * kMiB));
}

TEST_CASE("pieces between blocks are many if they are a good part of the device and of what is left of it") {
  Figures figures{.apart = 512 * kMiB, .in_holes = 32 * kMiB, .most = 1024 * kMiB};
  CHECK_FALSE(has_many_holes(figures));
  figures.in_holes = 33 * kMiB;
  CHECK(has_many_holes(figures));
  figures = {.apart = 1000 * kMiB, .in_holes = 16 * kMiB, .most = 1024 * kMiB};
  CHECK_FALSE(has_many_holes(figures));
  figures.in_holes = 17 * kMiB;
  CHECK(has_many_holes(figures));
  figures = {.most = 1024 * kMiB, .full_at = 1000 * kMiB};
  CHECK(has_many_holes(figures));
}

TEST_CASE("once the driver has refused memory a block gets no more than it needs") {
  CHECK(segment_bytes(kSettings, {.usable = 300 * kMiB, .full_at = 1000 * kMiB}, 5 * kMiB, false) ==
        6 * kMiB);
}

TEST_CASE("a program that has come to another phase gives its free segments back") {
  const Figures other{.reserved = 1000 * kMiB, .taken = 10 * kMiB, .most = 1024 * kMiB};
  CHECK(should_replace(other, 50 * kMiB, 60 * kMiB));
  CHECK_FALSE(should_replace(other, 50 * kMiB, 53 * kMiB));
}

TEST_CASE("a free segment is spared as long as the pool has little more than the program had at once") {
  Figures figures{.reserved = 1000 * kMiB, .usable = 1000 * kMiB, .peak_taken = 1000 * kMiB};
  CHECK(spare_bytes(kSettings, figures, 5 * kMiB) == segment_bytes(kSettings, figures, 5 * kMiB, false));
  CHECK(spare_bytes(kSettings, figures, 58 * kMiB) == 58 * kMiB);
  CHECK(spare_bytes(kSettings, figures, 60 * kMiB + 1) == 0);
  figures.reserved = 1050 * kMiB;
  CHECK(spare_bytes(kSettings, figures, 5 * kMiB) == 10 * kMiB);
  figures.reserved = 1056 * kMiB;
  CHECK(spare_bytes(kSettings, figures, 5 * kMiB) == 0);
  figures.reserved = 0;
  figures.is_cache_limited = true;
  CHECK(spare_bytes(kSettings, figures, 5 * kMiB) == 0);
}

TEST_CASE("what is lost to a taint does not make the next segment larger") {
  CHECK(segment_bytes(kSettings, {.usable = 1 << 30, .taken = 1 << 30, .is_newly_tainted = true}, 64 << 10,
                      true) == 2 * kMiB);
  CHECK(run_bytes(kSettings, {.usable = uint64_t{8} << 30, .is_newly_tainted = true}, 64 << 10) == 2 * kMiB);
  CHECK(run_bytes(kSettings, {.usable = uint64_t{8} << 30}, 64 << 10) == 32 * kMiB);
}

TEST_CASE("a segment for several large blocks holds a whole number of them") {
  const Figures much{.usable = uint64_t{4} << 30, .taken = uint64_t{4} << 30};
  Settings settings;
  const uint64_t bytes = segment_bytes(settings, much, 14 * kMiB, false);
  CHECK(bytes >= 3 * 14 * kMiB);
  CHECK(bytes % (14 * kMiB) == 0);
  // Where streams take turns, a few: existing blocks may soon be free again.
  Figures turns = much;
  turns.has_turns = true;
  CHECK(segment_bytes(settings, turns, 14 * kMiB, false) == 3 * 14 * kMiB);
}

TEST_CASE("blocks of one size that come in a row leave no rest in their segments") {
  Figures row{.usable = 256 * kMiB, .last_need = 6 * kMiB, .equal_segments = 2, .taken = 256 * kMiB};
  CHECK(segment_bytes(kSettings, row, 6 * kMiB, false) == 30 * kMiB);
  row.equal_segments = 1;
  CHECK(segment_bytes(kSettings, row, 6 * kMiB, false) == 32 * kMiB);
  row.equal_segments = 2;
  row.last_need = 16 * kMiB;
  CHECK(segment_bytes(kSettings, row, 6 * kMiB, false) == 32 * kMiB);
}

TEST_CASE("no segment is larger than the user lets blocks be cut from") {
  Settings settings;
  settings.split_max = 10 * kMiB;
  const Figures much{.usable = uint64_t{1} << 30, .taken = uint64_t{1} << 30};
  CHECK(segment_bytes(settings, much, 5 * kMiB, false) == 10 * kMiB);
  CHECK(segment_bytes(settings, much, 15 * kMiB, false) == segment_bytes(kSettings, much, 15 * kMiB, false));
  CHECK(largest_split(settings, 10 * kMiB) == 10 * kMiB);
  CHECK(largest_split(settings, 10 * kMiB + 1) == ~uint64_t{0});
}

TEST_CASE("mapped blocks of a page and more share no run, however much is reserved") {
  const Figures much{.usable = uint64_t{1} << 40};
  CHECK(run_bytes(kSettings, much, 2 * kMiB) == 2 * kMiB);
  CHECK(run_bytes(kSettings, much, 5 * kMiB) == 6 * kMiB);
  CHECK(run_bytes(kSettings, much, 2 * kMiB - 1) == kSettings.chunk);
  CHECK(run_bytes(kSettings, {}, 64 << 10) == 2 * kMiB);
}

TEST_CASE("mapped blocks of a page and more share no page once a sixteenth of the device is taken") {
  Figures figures{.reserved = 64 * kMiB, .most = 1024 * kMiB};
  CHECK(may_share_page(figures, 5 * kMiB));
  figures.reserved += 2 * kMiB;
  CHECK(!may_share_page(figures, 5 * kMiB));
  CHECK(!may_share_page(figures, 2 * kMiB));
  CHECK(may_share_page(figures, 2 * kMiB - 1));
}

TEST_CASE("few chunks make a large run, and a small one has the smallest there are") {
  CHECK(most_of_chunk(kSettings, 160 * kMiB) == 10 * kMiB);
  CHECK(most_of_chunk(kSettings, 32 * kMiB) == 2 * kMiB);
  CHECK(most_of_chunk(kSettings, 4 * kMiB) == 2 * kMiB);
  CHECK(most_of_chunk(kSettings, uint64_t{1} << 40) == kSettings.chunk);
}

TEST_CASE("streams that take turns get a segment each for small blocks") {
  Settings settings;
  settings.many_budget = uint64_t{1} << 30;
  CHECK(!may_spread(settings, {.lanes_in_turns = 0}, 64 << 10));
  constexpr uint64_t kSmall = 64 << 10;
  CHECK(may_spread(settings, {.spread = 4 * kMiB - kSmall, .lanes_in_turns = 2}, kSmall));
  CHECK(!may_spread(settings, {.spread = 4 * kMiB - kSmall + 1, .lanes_in_turns = 2}, kSmall));
  // More run side by side, far ahead of the device: all that the user allows, and an eighth of the most that
  // the program ever had.
  constexpr uint64_t kMuch = uint64_t{64} << 30;
  CHECK(may_spread(settings, {.peak_taken = kMuch, .spread = 500 * kMiB, .lanes_in_turns = 3}, kSmall));
  CHECK(!may_spread(settings, {.peak_taken = kMuch, .spread = 1024 * kMiB, .lanes_in_turns = 3}, kSmall));
  CHECK(may_spread(settings, {.peak_taken = 800 * kMiB, .spread = 99 * kMiB, .lanes_in_turns = 3}, kSmall));
  CHECK(!may_spread(settings, {.peak_taken = 800 * kMiB, .spread = 100 * kMiB, .lanes_in_turns = 3}, kSmall));
}

TEST_CASE("streams that take turns get a block each, and a third of what is needed at most") {
  Settings settings;
  settings.many_budget = uint64_t{1} << 40;
  const Figures large{.reserved = 6000 * kMiB, .peak_taken = 16000 * kMiB, .spread = 0, .lanes_in_turns = 2};
  // Two, and one in transit.
  CHECK(may_spread(
      settings,
      {.reserved = 6000 * kMiB, .peak_taken = 16000 * kMiB, .spread = 80 * kMiB, .lanes_in_turns = 2},
      40 * kMiB));
  CHECK(!may_spread(
      settings,
      {.reserved = 6000 * kMiB, .peak_taken = 16000 * kMiB, .spread = 81 * kMiB, .lanes_in_turns = 2},
      40 * kMiB));
  // None in transit where they are very large.
  CHECK(may_spread(
      settings,
      {.reserved = 6000 * kMiB, .peak_taken = 16000 * kMiB, .spread = 100 * kMiB, .lanes_in_turns = 2},
      100 * kMiB));
  CHECK(!may_spread(
      settings,
      {.reserved = 6000 * kMiB, .peak_taken = 16000 * kMiB, .spread = 101 * kMiB, .lanes_in_turns = 2},
      100 * kMiB));
  CHECK(may_spread(settings, large, 2000 * kMiB));
  CHECK(!may_spread(settings, large, 2001 * kMiB));
}

TEST_CASE("mapped memory may exceed what was handed out at once by little, or grow back to what it needed") {
  const Figures figures{.reserved = 3200 * kMiB, .peak_taken = 3200 * kMiB};
  CHECK(may_exceed(figures, 100 * kMiB));
  CHECK(!may_exceed(figures, 101 * kMiB));
  CHECK(may_exceed({.reserved = 1000 * kMiB, .spread = 200 * kMiB, .needed_once = 1000 * kMiB}, 200 * kMiB));
  CHECK(!may_exceed({.reserved = 1000 * kMiB, .spread = 200 * kMiB, .needed_once = 1000 * kMiB}, 201 * kMiB));
}

TEST_CASE("after many moves the largest run that they were made for gets new memory") {
  Figures figures{.reserved = 4800 * kMiB,
                  .peak_taken = 4800 * kMiB,
                  .moved = 32,
                  .few_moves = 32,
                  .largest_moved = 100 * kMiB};
  CHECK(!should_grow(figures, 100 * kMiB));
  figures.moved = 33;
  CHECK(should_grow(figures, 100 * kMiB));
  CHECK(!should_grow(figures, 50 * kMiB));
  // More than it may have, at any time.
  CHECK(!should_grow(figures, 201 * kMiB));
  // If the largest does not come again, any; or if it may not have it.
  figures.moved = 65;
  CHECK(should_grow(figures, 50 * kMiB));
  figures.moved = 33;
  figures.largest_moved = 201 * kMiB;
  CHECK(should_grow(figures, 50 * kMiB));
  // Where the user limits what is kept it would go back soon.
  figures.is_cache_limited = true;
  CHECK(!should_grow(figures, 50 * kMiB));
}

TEST_CASE("after a pause no more is found needed than streams had before it") {
  Figures figures{.reserved = 500, .spread = 300, .spread_once = 200, .needed_once = 1000};
  CHECK(maybe_needed(figures) == 200);
  figures.spread = 100;
  CHECK(maybe_needed(figures) == 100);
  figures.reserved = 1000;
  CHECK(maybe_needed(figures) == 0);
}

TEST_CASE("threads together keep a quarter of the pool, and nothing where the user limits that") {
  CHECK(thread_share({.reserved = 1600 * kMiB}, 4) == 100 * kMiB);
  CHECK(thread_share({.reserved = 1600 * kMiB}, 0) == 400 * kMiB);
  CHECK(thread_share({.reserved = 1600 * kMiB, .is_cache_limited = true}, 4) == 0);
}

TEST_CASE("a thread may free more before a seal where a seal costs more") {
  Settings settings;
  settings.many_budget = 1024 * kMiB;
  CHECK(most_unsealed(0) == 512 << 10);
  CHECK(most_unsealed(1024 * kMiB) == 2 * kMiB);
  CHECK(most_unsealed(settings, 512 * kMiB, {2, false}, 4096) == 2 * kMiB);
  CHECK(most_unsealed(settings, 512 * kMiB, {2, true}, 4096) == 4 * kMiB);
  CHECK(most_unsealed(settings, 512 * kMiB, {3, true}, 4096) == 32 * kMiB);
  CHECK(most_unsealed(settings, 512 * kMiB, {3, true}, 100 * kMiB) == 2 * kMiB);
}

TEST_CASE("segments thrash when they go back nearly as often as they come") {
  CHECK(!thrashes(10, 8));
  CHECK(thrashes(10, 9));
  CHECK(!thrashes(100, 44));
  CHECK(thrashes(100, 45));
}

}  // namespace
}  // namespace cupool::pool::growth
