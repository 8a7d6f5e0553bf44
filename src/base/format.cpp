// See format.hpp.
#if defined(__GNUC__) && !defined(__clang__)
// g++ 13 sees a copy past the end in fmt's code, where there is none. Before all headers: it is told of lines
// in the C++ library's.
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif
#define FMT_HEADER_ONLY
#include "base/format.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

// GCC emits the vtable of fmt's exception class here, though nothing throws it: its base class must not be
// linked from the C++ library, which would pull in all of exception handling.
asm(".weak _ZNSt13runtime_errorD2Ev\n.weak _ZNKSt13runtime_error4whatEv");

namespace cupool {
namespace {

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

// Calls visit(begin, size, harmless) for every character, and for every byte that is part of none.
template <typename Visit>
void visit_characters(const char* text, size_t size, Visit&& visit) {
  for (size_t i = 0; i < size;) {
    const Sequence one = decode(reinterpret_cast<const unsigned char*>(text + i), size - i);
    const size_t length = one.size == 0 ? 1 : one.size;
    visit(i, length, one.size != 0 && is_harmless(one.code));
    i += length;
  }
}

// Truncation may have cut a character in two.
void flatten_end(char* text, size_t size) {
  size_t begin = size;
  while (begin > 0 && size - begin < 3 && (text[begin - 1] & 0xC0) == 0x80) --begin;
  if (begin > 0 && (text[begin - 1] & 0x80) != 0) flatten(text + begin - 1, size - begin + 1);
}

}  // namespace

size_t first_character(std::string_view text) {
  return decode(reinterpret_cast<const unsigned char*>(text.data()), text.size()).size;
}

void flatten(char* text, size_t size) {
  visit_characters(text, size, [&](size_t begin, size_t length, bool harmless) {
    if (!harmless) memset(text + begin, '?', length);
  });
}

size_t format_packed_into(std::span<char> out, fmt::string_view format, fmt::format_args args) {
  const size_t room = out.empty() ? 0 : out.size() - 1;
  const size_t wanted = fmt::vformat_to_n(out.data(), room, format, args).size;
  const size_t size = std::min(wanted, room);
  if (size < wanted) flatten_end(out.data(), size);
  if (!out.empty()) out[size] = '\0';
  return size;
}

}  // namespace cupool

auto fmt::formatter<cupool::Outside>::format(const cupool::Outside& outside, format_context& context) const
    -> format_context::iterator {
  auto out = context.out();
  const std::string_view text = outside.text;
  cupool::visit_characters(text.data(), text.size(), [&](size_t begin, size_t length, bool harmless) {
    for (const char c : text.substr(begin, length)) *out++ = harmless ? c : '?';
  });
  return out;
}
