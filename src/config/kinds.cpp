// See kinds.hpp. Words are compared without regard to case, as people write them; nothing here depends on the
// locale.
#include "config/kinds.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"

namespace cupool::config {
namespace {

constexpr std::string_view kTrueWords = "|1|yes|on|true|y";
constexpr std::string_view kFalseWords = "|0|no|off|false|n|";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

// Takes the next word off a list such as "|cache|off".
bool next_word(std::string_view& words, std::string_view& word) {
  if (words.empty()) return false;
  words.remove_prefix(1);
  const size_t end = std::min(words.find('|'), words.size());
  word = words.substr(0, end);
  words.remove_prefix(end);
  return true;
}

ValueText print_text(std::string_view text) {
  ValueText out;
  const size_t size = std::min(text.size(), sizeof out.text - 1);
  memcpy(out.text, text.data(), size);
  out.text[size] = '\0';
  return out;
}

}  // namespace

bool parse_word(std::string_view words, std::string_view text, unsigned& index) {
  std::string_view word;
  for (unsigned i = 0; next_word(words, word); ++i) {
    if (same_word(word, text)) {
      index = i;
      return true;
    }
  }
  return false;
}

ValueText print_word(std::string_view words, unsigned index) {
  std::string_view word;
  for (unsigned i = 0; next_word(words, word); ++i) {
    if (i == index) return print_text(word);
  }
  return print_text("?");
}

bool parse(std::string_view text, bool& value) {
  unsigned index = 0;
  if (parse_word(kTrueWords, text, index)) {
    value = true;
    return true;
  }
  if (parse_word(kFalseWords, text, index)) {
    value = false;
    return true;
  }
  return false;
}

bool parse(std::string_view text, uint64_t& value) {
  if (text.empty()) return false;
  uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    if (__builtin_mul_overflow(number, uint64_t{10}, &number)) return false;
    if (__builtin_add_overflow(number, static_cast<uint64_t>(c - '0'), &number)) return false;
  }
  value = number;
  return true;
}

bool parse(std::string_view text, Size& value) {
  const auto size = parse_size(text);
  if (size) value = *size;
  return size.has_value();
}

bool parse(std::string_view text, Text& value) {
  if (text.empty()) {
    value = "";
    return true;
  }
  // Copied for the life of the process: the program may change the environment that it came from.
  char* const copy = strndup(text.data(), text.size());
  if (copy == nullptr) return false;
  value = copy;
  return true;
}

ValueText print(bool value) { return print_text(value ? "yes" : "no"); }

ValueText print(uint64_t value) {
  ValueText out;
  format_into(out.text, "{}", value);
  return out;
}

ValueText print(Size value) { return print_text(print_size(value)); }

ValueText print(Text value) { return print_text(value); }

}  // namespace cupool::config
