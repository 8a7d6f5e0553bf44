// See format.hpp.
#include "base/format.hpp"

#include <cstdint>
#include <cstring>

namespace cupool {
namespace {

// Counts what does not fit, so that a caller learns how much there was.
class Sink {
 public:
  Sink(char* out, size_t room) : out_(out), room_(room) {}

  void put(char c) {
    if (size_ + 1 < room_) out_[size_] = c;
    ++size_;
  }
  void put(const char* text, size_t size) {
    for (size_t i = 0; i < size; ++i) put(text[i]);
  }
  void fill(char c, size_t count) {
    for (size_t i = 0; i < count; ++i) put(c);
  }
  size_t finish() {
    if (room_ != 0) out_[size_ < room_ ? size_ : room_ - 1] = '\0';
    return size_;
  }
  // What was put since `begin`, as far as it fits.
  void flatten_from(size_t begin) {
    const size_t end = size_ + 1 < room_ ? size_ : room_ == 0 ? 0 : room_ - 1;
    if (begin < end) flatten(out_ + begin, end - begin);
  }
  size_t size() const { return size_; }

 private:
  char* out_;
  size_t room_;
  size_t size_ = 0;
};

struct Spec {
  bool left = false;
  bool zero = false;
  bool hash = false;
  size_t width = 0;
  int precision = -1;
};

// The digits of a number, from the back of a buffer.
class Digits {
 public:
  Digits(uint64_t value, unsigned base, bool capital) {
    const char* const letters = capital ? "0123456789ABCDEF" : "0123456789abcdef";
    do {
      *--begin_ = letters[value % base];
      value /= base;
    } while (value != 0);
  }
  const char* text() const { return begin_; }
  size_t size() const { return static_cast<size_t>(room_ + sizeof room_ - begin_); }

 private:
  char room_[24];
  char* begin_ = room_ + sizeof room_;
};

void put_padded(Sink& out, const Spec& spec, const char* sign, const char* body, size_t size) {
  const size_t whole = strlen(sign) + size;
  const size_t pad = spec.width > whole ? spec.width - whole : 0;
  const bool zeros = spec.zero && !spec.left;
  if (!spec.left && !zeros) out.fill(' ', pad);
  out.put(sign, strlen(sign));
  if (zeros) out.fill('0', pad);
  out.put(body, size);
  if (spec.left) out.fill(' ', pad);
}

void put_number(Sink& out, const Spec& spec, const char* sign, uint64_t value, unsigned base, bool capital) {
  const Digits digits(value, base, capital);
  put_padded(out, spec, sign, digits.text(), digits.size());
}

void put_text(Sink& out, const Spec& spec, const char* text) {
  if (text == nullptr) text = "(null)";
  const size_t size = spec.precision < 0 ? strlen(text) : strnlen(text, static_cast<size_t>(spec.precision));
  const size_t begin = out.size();
  Spec plain = spec;
  plain.zero = false;
  put_padded(out, plain, "", text, size);
  out.flatten_from(begin);
}

// Rounded half up. Beyond what fits a 64-bit number it says so.
void put_real(Sink& out, const Spec& spec, double value) {
  constexpr double kMost = 1e18;
  const int places = spec.precision < 0 ? 6 : spec.precision > 9 ? 9 : spec.precision;
  const char* const sign = value < 0 ? "-" : "";
  if (value < 0) value = -value;
  uint64_t scale = 1;
  for (int i = 0; i < places; ++i) scale *= 10;
  if (!(value < kMost)) return put_padded(out, spec, sign, "?", 1);
  auto whole = static_cast<uint64_t>(value);
  auto part = static_cast<uint64_t>((value - static_cast<double>(whole)) * static_cast<double>(scale) + 0.5);
  if (part >= scale) {
    ++whole;
    part -= scale;
  }
  char text[48];
  size_t size = 0;
  const Digits before(whole, 10, false);
  memcpy(text, before.text(), before.size());
  size += before.size();
  if (places != 0) {
    text[size++] = '.';
    for (int i = places; i-- > 0; part /= 10)
      text[size + static_cast<size_t>(i)] = static_cast<char>('0' + part % 10);
    size += static_cast<size_t>(places);
  }
  put_padded(out, spec, sign, text, size);
}

enum class Length { kInt, kLong, kWide };

int64_t take_signed(Length length, va_list& args) {
  if (length == Length::kWide) return va_arg(args, long long);
  return length == Length::kLong ? va_arg(args, long) : va_arg(args, int);
}
uint64_t take_unsigned(Length length, va_list& args) {
  if (length == Length::kWide) return va_arg(args, unsigned long long);
  return length == Length::kLong ? va_arg(args, unsigned long) : va_arg(args, unsigned);
}

// One conversion, `at` behind its percent sign; what stands behind it.
const char* convert(Sink& out, const char* at, va_list& args) {
  Spec spec;
  for (;; ++at) {
    if (*at == '-') {
      spec.left = true;
    } else if (*at == '0') {
      spec.zero = true;
    } else if (*at == '#') {
      spec.hash = true;
    } else {
      break;
    }
  }
  const auto number = [&] {
    int value = 0;
    if (*at == '*') {
      ++at;
      return va_arg(args, int);
    }
    for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + (*at - '0');
    return value;
  };
  const int width = number();
  spec.left = spec.left || width < 0;
  spec.width = static_cast<size_t>(width < 0 ? -width : width);
  if (*at == '.') {
    ++at;
    spec.precision = number();
  }
  Length length = Length::kInt;
  for (;; ++at) {
    if (*at == 'l') {
      length = length == Length::kInt ? Length::kLong : Length::kWide;
    } else if (*at == 'z' || *at == 'j' || *at == 't') {
      length = Length::kLong;
    } else if (*at != 'h') {
      break;
    }
  }
  switch (*at) {
    case 'd':
    case 'i': {
      const int64_t value = take_signed(length, args);
      put_number(out, spec, value < 0 ? "-" : "",
                 value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value), 10, false);
      break;
    }
    case 'u':
      put_number(out, spec, "", take_unsigned(length, args), 10, false);
      break;
    case 'x':
    case 'X': {
      const uint64_t value = take_unsigned(length, args);
      put_number(out, spec, spec.hash && value != 0 ? "0x" : "", value, 16, *at == 'X');
      break;
    }
    case 'p':
      put_number(out, spec, "0x", reinterpret_cast<uintptr_t>(va_arg(args, void*)), 16, false);
      break;
    case 'f':
      put_real(out, spec, va_arg(args, double));
      break;
    case 'c': {
      const char c = static_cast<char>(va_arg(args, int));
      put_padded(out, spec, "", &c, 1);
      break;
    }
    case 's':
      put_text(out, spec, va_arg(args, const char*));
      break;
    case '\0':
      return at;
    default:
      out.put(*at);
  }
  return at + 1;
}

struct Sequence {
  unsigned size;  // 0: not UTF-8
  uint32_t code;
};

Sequence decode(const unsigned char* text, size_t left) {
  const unsigned char first = text[0];
  if (first < 0x80) return {1, first};
  const unsigned size = first >= 0xF0 && first < 0xF5   ? 4
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xC2 && first < 0xE0 ? 2
                                                        : 0;
  if (size == 0 || size > left) return {0, 0};
  uint32_t code = first & (0x7Fu >> size);
  for (unsigned i = 1; i < size; ++i) {
    if ((text[i] & 0xC0) != 0x80) return {0, 0};
    code = code << 6 | (text[i] & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[size] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {0, 0};
  return {size, code};
}

bool is_harmless(uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
  const bool separates = code == 0x2028 || code == 0x2029;
  const bool turns = code == 0x061C || code == 0x200E || code == 0x200F ||
                     (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return !separates && !turns;
}

}  // namespace

size_t format_list(char* out, size_t room, const char* format, va_list list) {
  Sink sink(out, room);
  va_list args;
  va_copy(args, list);
  for (const char* at = format; *at != '\0';) {
    if (*at == '%') {
      at = convert(sink, at + 1, args);
    } else {
      sink.put(*at++);
    }
  }
  va_end(args);
  return sink.finish();
}

size_t format(char* out, size_t room, const char* text, ...) {
  va_list args;
  va_start(args, text);
  const size_t size = format_list(out, room, text, args);
  va_end(args);
  return size;
}

void flatten(char* text, size_t size) {
  for (size_t i = 0; i < size;) {
    const Sequence one = decode(reinterpret_cast<const unsigned char*>(text + i), size - i);
    const size_t length = one.size == 0 ? 1 : one.size;
    if (one.size == 0 || !is_harmless(one.code)) memset(text + i, '?', length);
    i += length;
  }
}

}  // namespace cupool
