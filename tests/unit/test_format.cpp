// Texts are made with fmt: into a fixed buffer, in any locale, without memory, and harmless whatever is put
// in.
#include <catch2/catch.hpp>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "base/format.hpp"

using namespace cupool;

namespace {

size_t allocations = 0;

template <typename... Args>
std::string made(Format<Args...> format, const Args&... args) {
  char text[128];
  const size_t size = format_into(text, format, args...);
  CHECK(size == std::char_traits<char>::length(text));
  return text;
}

std::string printed(double value, int places) {
  char text[128];
  std::snprintf(text, sizeof text, "%.*f", places, value);
  return text;
}

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  return std::malloc(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return ::operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

TEST_CASE("numbers, texts and pointers read as people write them") {
  CHECK(made("{}|{:5}|{:<4}|{:08}", -7, 42, 7u, uint64_t{1} << 20) == "-7|   42|7   |01048576");
  CHECK(made("{}|{}", INT64_MIN, UINT64_MAX) == "-9223372036854775808|18446744073709551615");
  CHECK(made("{:x}|{:#x}|{:04x}", 255, 4096, 0xabu) == "ff|0x1000|00ab");
  CHECK(made("{}|{}|{}%", 'x', reinterpret_cast<void*>(0x1234), "abc") == "x|0x1234|abc%");
  CHECK(made("{:<6}|{:>6}", trusted("ab"), trusted("ab")) == "ab    |    ab");
  CHECK(made("{}|{}", first("abcdef", 2), static_cast<const char*>(nullptr)) == "ab|(null)");
}

TEST_CASE("fractions are rounded as the C library rounds them") {
  for (const double value :
       {0.0, 0.004, 0.125, 0.28106, 0.9996, 1.0, 12.346, 99.949, 1234567.891, -2.7, 1.8e10}) {
    for (const int places : {0, 1, 2, 3, 4}) CHECK(made("{:.{}f}", value, places) == printed(value, places));
  }
}

TEST_CASE("formatting allocates no host memory") {
  char text[256];
  const std::string_view part = "text";
  const size_t before = allocations;
  for (double value = 1e-9; value < 1e19; value *= 7)
    format_into(text, "{:.4f} {:15.1f} {} {:16} {:#x} {}", value, value, part, UINT64_MAX, 17, 'c');
  CHECK(allocations == before);
}

TEST_CASE("text that does not fit is truncated and terminated") {
  char text[8];
  CHECK(format_into(text, "{}", "0123456789") == 7);
  CHECK(std::string(text) == "0123456");
  CHECK(format_into({}, "{}", 12345) == 0);
  CHECK(format_into({text, 1}, "{}", 12345) == 0);
  CHECK(*text == '\0');
}

TEST_CASE("truncation leaves no half of a character") {
  char text[8];
  format_into(text, "{}", "01234\xe2\x82\xac");
  CHECK(std::string(text) == "01234??");
  format_into(text, "{}", "0123\xe2\x82\xac\xe2\x82\xac");
  CHECK(std::string(text) == "0123\xe2\x82\xac");
}

TEST_CASE("inserted text cannot end a line or move a cursor") {
  CHECK(made("a{}\nb", "\n\r\x1b]0;x\x07") == "a???]0;x?\nb");
  CHECK(made("{}", std::string("\xc2\x9b|\xff|\xe2\x80\xae|\xc3\xa9")) == "??|?|???|\xc3\xa9");
}

TEST_CASE("the program's locale does not reach into a report") {
  const char* const set = std::setlocale(LC_ALL, "de_DE.UTF-8");
  CHECK(made("{:.1f} {}", 1.5, 1234567) == "1.5 1234567");
  if (set != nullptr) std::setlocale(LC_ALL, "C");
}
