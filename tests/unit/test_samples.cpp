// What can be told from a few runs, and what is called noise.
#include <catch2/catch.hpp>

#include "tools/samples.hpp"

using namespace cupool::tools;

TEST_CASE("the median of runs is the middle one, or lies between the two in the middle") {
  CHECK(spread_of({3, 1, 2}).median == 2);
  CHECK(spread_of({4, 1, 2, 3}).median == 2.5);
  CHECK(spread_of({7}).median == 7);
  CHECK(spread_of({3, 1, 2}).least == 1);
  CHECK(spread_of({3, 1, 2}).most == 3);
}

TEST_CASE("fewer than three runs of either side tell nothing") {
  CHECK(compare_samples({}, {}) == Told::kNothing);
  CHECK(compare_samples({9, 9}, {1, 1}) == Told::kNothing);
  CHECK(compare_samples({9, 9, 9}, {1, 1}) == Told::kNothing);
}

TEST_CASE("sides whose runs do not overlap differ") {
  CHECK(compare_samples({10, 11, 12}, {7, 8, 9}) == Told::kLess);
  CHECK(compare_samples({7, 8, 9}, {10, 11, 12}) == Told::kMore);
}

TEST_CASE("sides whose runs overlap differ only if nearly all pairs agree") {
  CHECK(compare_samples({10, 11, 12}, {7, 8, 11.5}) == Told::kNoise);
  CHECK(compare_samples({10, 12, 14, 11, 13}, {9, 9, 9, 9, 11.5}) == Told::kNoise);
  // One pair of twenty-five.
  CHECK(compare_samples({10, 12, 14, 11, 13}, {9, 9, 9, 9, 10.5}) == Told::kLess);
  CHECK(compare_samples({9, 9, 9, 9, 10.5}, {10, 12, 14, 11, 13}) == Told::kMore);
}

TEST_CASE("sides whose medians are within a hundredth are the same however sure that is") {
  CHECK(compare_samples({100, 100, 100}, {100, 100, 100}) == Told::kSame);
  CHECK(compare_samples({100, 100, 100}, {99.5, 99.5, 99.5}) == Told::kSame);
  CHECK(compare_samples({100, 100, 100}, {98, 98, 98}) == Told::kLess);
}
