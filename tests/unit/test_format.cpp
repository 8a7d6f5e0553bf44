// Our own formatting against the C library's, in every conversion that messages and reports use.
#include <catch2/catch.hpp>
#include <clocale>
#include <cstdio>
#include <string>

#include "base/format.hpp"

using namespace cupool;

namespace {

template <typename... Args>
void same(const char* how, Args... args) {
  char ours[128];
  char theirs[128];
  const size_t size = format(ours, sizeof ours, how, args...);
  const int expected = std::snprintf(theirs, sizeof theirs, how, args...);
  CHECK(std::string(ours) == theirs);
  CHECK(size == static_cast<size_t>(expected));
}

}  // namespace

TEST_CASE("numbers, texts and pointers read as the C library prints them") {
  for (const long long value : {0ll, 7ll, -7ll, 123456789ll, (1ll << 62), -(1ll << 62)}) {
    for (const char* how : {"%lld", "%5lld", "%-9lld|", "%012lld", "%llx", "%#llx", "%llX"}) same(how, value);
  }
  same("%d|%i|%u|%x", -1, 42, 3000000000u, 255);
  same("%zu|%tx|%lu|%c|%%", size_t{1} << 40, ptrdiff_t{4096}, 5ul, 'x');
  same("%s|%8s|%-8s|%.3s|%.*s|%*s", "abcdef", "ab", "ab", "abcdef", 2, "abcdef", 6, "abc");
  same("%p", reinterpret_cast<void*>(0x1234));
  same("%04x|%16llu|%-24s|", 0xabu, 17ull, "name");
}

TEST_CASE("fractions are rounded as the C library rounds them") {
  for (const double value : {0.0, 0.004, 0.28106, 0.9996, 1.0, 12.346, 99.949, 1234567.891, -2.7}) {
    for (const char* how : {"%.1f", "%.0f", "%.3f", "%.4f", "%9.1f|", "%-9.2f|", "%f"}) same(how, value);
  }
}

TEST_CASE("what does not fit is cut and its length is told") {
  char text[8];
  CHECK(format(text, sizeof text, "%s", "0123456789") == 10);
  CHECK(std::string(text) == "0123456");
  CHECK(format(nullptr, 0, "%d", 12345) == 5);
}

TEST_CASE("a text that is put in cannot end a line or move a cursor") {
  char text[64];
  format(text, sizeof text, "a%s\nb", "\n\r\x1b]0;x\x07");
  CHECK(std::string(text) == "a???]0;x?\nb");
}

TEST_CASE("the program's locale does not reach into a report") {
  const char* const set = std::setlocale(LC_ALL, "de_DE.UTF-8");
  char text[16];
  format(text, sizeof text, "%.1f", 1.5);
  CHECK(std::string(text) == "1.5");
  if (set != nullptr) std::setlocale(LC_ALL, "C");
}
