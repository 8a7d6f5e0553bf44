// Sealed handles: what goes in comes out, and nothing of the driver's handle can be taken for one of its own.
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "base/bytes.hpp"
#include "share/sealed_handle.hpp"

using namespace cupool;
using share::Handle;
using share::Place;

namespace {

Handle drivers_handle(unsigned seed) {
  std::mt19937 random(seed);
  Handle handle{};
  // As the driver fills them: half of the bytes are zero, the last eight always.
  for (size_t i = 0; i < 56; ++i) handle[i] = static_cast<unsigned char>(random() % 2 == 0 ? 0 : random());
  return handle;
}

const Place kPlaces[] = {{0, 1},
                         {512, 511},
                         {20 * kMiB - 512, 512},
                         {100 * kGiB + 1024, 32 * kKiB},
                         {16 * kKiB, 33 * kKiB},
                         {kGiB, 5 * kGiB + 1},
                         {1000 * kGiB, 100 * kGiB - 1},
                         {0, 127 * kGiB}};

}  // namespace

TEST_CASE("a sealed handle opens at the place and the segment that were sealed") {
  for (const Place& place : kPlaces) {
    const Handle before = drivers_handle(7);
    Handle handle = before;
    REQUIRE(share::seal(&handle, place));
    Place found;
    REQUIRE(share::unseal(&handle, &found));
    CHECK(handle == before);
    CHECK(found.offset == place.offset);
    CHECK(found.bytes == place.bytes);
  }
}

TEST_CASE("every byte that the driver reads is changed in a sealed handle") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Handle before = drivers_handle(seed);
    Handle handle = before;
    REQUIRE(share::seal(&handle, kPlaces[seed % std::size(kPlaces)]));
    for (size_t i = 0; i < 56; ++i) CHECK(handle[i] != before[i]);
  }
}

TEST_CASE("blocks of one segment have different handles") {
  std::set<Handle> seen;
  for (uint64_t offset = 0; offset < kMiB; offset += 512) {
    Handle handle = drivers_handle(1);
    REQUIRE(share::seal(&handle, {offset, 512}));
    CHECK(seen.insert(handle).second);
  }
}

TEST_CASE("the driver's own handle is not taken for a sealed one") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Handle handle = drivers_handle(seed);
    const Handle before = handle;
    Place place;
    CHECK_FALSE(share::unseal(&handle, &place));
    CHECK(handle == before);
  }
}

TEST_CASE("a place that does not fit into a handle is not sealed") {
  Handle handle = drivers_handle(3);
  const Handle before = handle;
  CHECK_FALSE(share::seal(&handle, {512, 200 * kGiB}));
  CHECK_FALSE(share::seal(&handle, {100, 512}));
  CHECK_FALSE(share::seal(&handle, {512, 0}));
  CHECK(handle == before);
  handle[60] = 1;  // a driver that uses these bytes itself
  CHECK_FALSE(share::seal(&handle, {512, 512}));
}
