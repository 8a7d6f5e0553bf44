// See bytes.hpp. Numbers are read by hand: strtod obeys the program's locale, where "1.5" may not be a
// number.
#include "base/bytes.hpp"

#include <cstring>

#include "base/format.hpp"

namespace cupool {
namespace {

constexpr uint64_t kPercentWhole = 10000;
constexpr int kMaxFractionDigits = 9;
constexpr char kUnits[] = "KMGT";

struct Number {
  uint64_t whole = 0;
  uint64_t fraction = 0;  // over `scale`
  uint64_t scale = 1;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the number off the front of `text`; digits of the fraction beyond the ninth are dropped.
std::optional<Number> take_number(std::string_view& text) {
  Number number;
  size_t i = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    if (__builtin_mul_overflow(number.whole, uint64_t{10}, &number.whole) ||
        __builtin_add_overflow(number.whole, static_cast<uint64_t>(text[i] - '0'), &number.whole)) {
      return std::nullopt;
    }
  }
  if (i == 0) return std::nullopt;
  if (i < text.size() && text[i] == '.') {
    const size_t first = ++i;
    for (; i < text.size() && is_digit(text[i]); ++i) {
      if (i - first >= kMaxFractionDigits) continue;
      number.fraction = number.fraction * 10 + static_cast<uint64_t>(text[i] - '0');
      number.scale *= 10;
    }
    if (i == first) return std::nullopt;
  }
  text.remove_prefix(i);
  return number;
}

std::optional<uint64_t> times(const Number& number, uint64_t unit) {
  const auto value = static_cast<unsigned __int128>(number.whole) * unit +
                     static_cast<unsigned __int128>(number.fraction) * unit / number.scale;
  if (value > UINT64_MAX) return std::nullopt;
  return static_cast<uint64_t>(value);
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// The power of 1024 that a unit such as "", "B", "K", "KB", "KiB" stands for.
std::optional<uint64_t> unit_of(std::string_view text) {
  uint64_t unit = 1;
  if (!text.empty()) {
    const char* found = strchr(kUnits, upper(text[0]));
    if (found != nullptr && *found != '\0') {
      unit = uint64_t{1} << (10 * (found - kUnits + 1));
      text.remove_prefix(1);
      if (text.size() == 2 && upper(text[0]) == 'I') text.remove_prefix(1);
    }
  }
  if (text.empty() || (text.size() == 1 && upper(text[0]) == 'B')) return unit;
  return std::nullopt;
}

}  // namespace

std::optional<Size> parse_size(std::string_view text) {
  if (text == "unlimited") return Size{kUnlimited, false};
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  if (text == "%") {
    const auto part = times(*number, kPercentWhole / 100);
    if (!part || *part > kPercentWhole) return std::nullopt;
    return Size{*part, true};
  }
  if (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  const auto unit = unit_of(text);
  if (!unit) return std::nullopt;
  const auto bytes = times(*number, *unit);
  if (!bytes) return std::nullopt;
  return Size{*bytes, false};
}

SizeText print_bytes(uint64_t bytes) {
  SizeText out;
  if (bytes == kUnlimited) {
    format_into(out.text, "unlimited");
    return out;
  }
  int power = 0;
  // 1023.95 KiB would be printed as 1024.0 KiB: it belongs to the next unit.
  while (power < 4 && (bytes >> (10 * power)) >= 1024) ++power;
  if (power == 0) {
    format_into(out.text, "{} B", bytes);
    return out;
  }
  uint64_t unit = uint64_t{1} << (10 * power);
  uint64_t tenths = static_cast<uint64_t>((static_cast<unsigned __int128>(bytes) * 10 + unit / 2) / unit);
  if (tenths >= 10240 && power < 4) {
    unit <<= 10;
    ++power;
    tenths = (bytes * 10 + unit / 2) / unit;
  }
  const auto whole = static_cast<unsigned>(tenths / 10);  // below 2^24: the last unit is 2^40
  const auto tenth = static_cast<unsigned>(tenths % 10);
  if (tenth == 0) {
    format_into(out.text, "{} {}iB", whole, kUnits[power - 1]);
  } else {
    format_into(out.text, "{}.{} {}iB", whole, tenth, kUnits[power - 1]);
  }
  return out;
}

SizeText print_size(Size size) {
  SizeText out;
  const uint64_t value = size.bytes;
  if (size.percent) {
    const auto rest = static_cast<unsigned>(value % 100);
    if (rest == 0) {
      format_into(out.text, "{}%", value / 100);
    } else if (rest % 10 == 0) {
      format_into(out.text, "{}.{}%", value / 100, rest / 10);
    } else {
      format_into(out.text, "{}.{:02}%", value / 100, rest);
    }
    return out;
  }
  if (size.bytes == kUnlimited) {
    format_into(out.text, "unlimited");
    return out;
  }
  int power = 0;
  while (power < 4 && value != 0 && (value >> (10 * power)) % 1024 == 0) ++power;
  if (power == 0) {
    format_into(out.text, "{}", value);
  } else {
    format_into(out.text, "{}{}", value >> (10 * power), kUnits[power - 1]);
  }
  return out;
}

}  // namespace cupool
