// Byte sizes: what people write is understood, what they did not mean is refused, what we print can be read
// back.
#include <catch2/catch.hpp>
#include <string>

#include "base/bytes.hpp"

using namespace cupool;

namespace {

uint64_t bytes_of(const char* text) {
  const auto size = parse_size(text);
  REQUIRE(size.has_value());
  REQUIRE_FALSE(size->percent);
  return size->bytes;
}

}  // namespace

TEST_CASE("a size is read in every form people write it") {
  CHECK(bytes_of("0") == 0);
  CHECK(bytes_of("512") == 512);
  CHECK(bytes_of("512B") == 512);
  CHECK(bytes_of("64K") == 64 * kKiB);
  CHECK(bytes_of("64k") == 64 * kKiB);
  CHECK(bytes_of("64KB") == 64 * kKiB);
  CHECK(bytes_of("64KiB") == 64 * kKiB);
  CHECK(bytes_of("64 KiB") == 64 * kKiB);
  CHECK(bytes_of("1.5GiB") == kGiB + kGiB / 2);
  CHECK(bytes_of("2T") == 2048 * kGiB);
  CHECK(bytes_of("unlimited") == kUnlimited);
}

TEST_CASE("a part of the device is read as a percentage and applied to the whole") {
  const auto part = parse_size("12.5%");
  REQUIRE(part.has_value());
  CHECK(part->percent);
  CHECK(part->of(80 * kGiB) == 10 * kGiB);
  CHECK(parse_size("100%")->of(UINT64_MAX) == UINT64_MAX);
  CHECK_FALSE(parse_size("101%").has_value());
}

TEST_CASE("a text that is no size is refused") {
  for (const char* text : {"",
                           " ",
                           "K",
                           "-1",
                           "+1",
                           "1.",
                           ".5",
                           "1..5",
                           "1,5G",
                           "0x10",
                           "12 34",
                           "1KK",
                           "1Ki",
                           "1 %",
                           "unlimited!",
                           "1e9",
                           "99999999999999999999",
                           "99999999T",
                           "nan",
                           "\xff"}) {
    INFO(text);
    CHECK_FALSE(parse_size(text).has_value());
  }
}

TEST_CASE("bytes are printed with the unit a reader expects") {
  CHECK(std::string(print_bytes(0).text) == "0 B");
  CHECK(std::string(print_bytes(1023).text) == "1023 B");
  CHECK(std::string(print_bytes(1024).text) == "1 KiB");
  CHECK(std::string(print_bytes(kGiB + kGiB / 2).text) == "1.5 GiB");
  CHECK(std::string(print_bytes(kMiB - 1).text) == "1 MiB");
  CHECK(std::string(print_bytes(kUnlimited).text) == "unlimited");
}

TEST_CASE("a printed size reads back as the same value") {
  for (uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{511}, uint64_t{1536}, 3 * kMiB, 5 * kGiB + 1, kUnlimited}) {
    CHECK(parse_size(print_size(Size{bytes, false}).text) == Size{bytes, false});
  }
  for (uint64_t hundredths : {0, 1, 25, 110, 1250, 10000}) {
    CHECK(parse_size(print_size(Size{hundredths, true}).text) == Size{hundredths, true});
  }
}
