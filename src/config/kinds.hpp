// The types an option can have: for each, how its value is read, printed, and described in a sentence.
// Choices get all three from their row in options.def.
#pragma once

#include <string_view>

#include "config/options.hpp"

namespace cupool::config {

// "|cache|native|off": the words of a choice in the order of its enumerators.
template <typename T>
struct Words;
#define CUPOOL_VALUE(constant, word) "|" word
#define CUPOOL_ENUM(type, ...)                   \
  template <>                                    \
  struct Words<type> {                           \
    static constexpr char kList[] = __VA_ARGS__; \
  };
#include "config/options.def"
#undef CUPOOL_VALUE

// A printed value; a text longer than the buffer is truncated.
struct ValueText {
  char text[128];
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text and prints as one
  operator std::string_view() const { return text; }
};

bool parse_word(std::string_view words, std::string_view text, unsigned& index);
ValueText print_word(std::string_view words, unsigned index);

bool parse(std::string_view text, bool& value);
bool parse(std::string_view text, uint64_t& value);
bool parse(std::string_view text, Size& value);
bool parse(std::string_view text, Text& value);  // keeps a copy, never freed
template <typename T>
requires requires { Words<T>::kList; }
bool parse(std::string_view text, T& value) {
  unsigned index = 0;
  if (!parse_word(Words<T>::kList, text, index)) return false;
  value = static_cast<T>(index);
  return true;
}

ValueText print(bool value);
ValueText print(uint64_t value);
ValueText print(Size value);
ValueText print(Text value);
template <typename T>
requires requires { Words<T>::kList; }
ValueText print(T value) { return print_word(Words<T>::kList, static_cast<unsigned>(value)); }

// "yes or no", "a size", "cache|native|off": the wording in tables and in complaints.
inline const char* describe(bool) { return "yes|no"; }
inline const char* describe(uint64_t) { return "number"; }
inline const char* describe(Size) { return "size"; }
inline const char* describe(Text) { return "text"; }
template <typename T>
requires requires { Words<T>::kList; }
const char* describe(T) { return Words<T>::kList + 1; }

}  // namespace cupool::config
