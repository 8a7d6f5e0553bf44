// All text of the library and the command is formatted here, with fmt: formats are checked at compile time,
// numbers ignore the program's locale, and output of any length goes into a fixed buffer. May run in a signal
// handler: allocates nothing, takes no lock, keeps no state. Inserted text is untrusted: what could move a
// cursor or forge a line becomes a question mark. This is the one place that includes and configures fmt; its
// implementation is compiled in format.cpp and say.cpp alone (FMT_HEADER_ONLY).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>
#include <type_traits>

// No std::locale, no exception objects, and only the floating-point type that is used.
#define FMT_STATIC_THOUSANDS_SEPARATOR ','
#define FMT_THROW(error) ::abort()
#define FMT_USE_FLOAT 0
#define FMT_USE_LONG_DOUBLE 0
#include <fmt/core.h>

namespace cupool {

// Turns a text into one harmless line, in place: control characters, invalid UTF-8, the C1 controls, line
// separators and direction overrides become question marks, byte by byte.
void flatten(char* text, size_t size);

// How many bytes its first character has; 0: it does not begin with one in UTF-8. pre: it is not empty.
size_t first_character(std::string_view text);

// Untrusted text, the default: printed flattened, and without a width.
struct Outside {
  explicit Outside(const char* text) : text(text == nullptr ? "(null)" : text) {}
  explicit Outside(std::string_view text) : text(text) {}
  std::string_view text;
};

// Text of our own, printed as it is; may have a width.
inline fmt::string_view trusted(std::string_view text) { return {text.data(), text.size()}; }

// At most the first `most` bytes of a text.
inline std::string_view first(std::string_view text, size_t most) { return text.substr(0, most); }

template <typename T>
using Argument = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, Outside, T>;

// A format checked against these arguments, and the packed arguments, valid until the end of the full
// expression.
template <typename... Args>
using Format = fmt::format_string<Argument<Args>...>;
template <typename... Args>
auto packed(const Args&... args) {
  return fmt::make_format_args(args...);
}

// Truncates what does not fit, always terminates if there is room, and returns the length written.
size_t format_packed_into(std::span<char> out, fmt::string_view format, fmt::format_args args);
template <typename... Args>
[[gnu::cold, gnu::noinline]] size_t format_into(std::span<char> out, Format<Args...> format,
                                                const Args&... args) {
  return format_packed_into(out, format, packed(Argument<Args>(args)...));
}

}  // namespace cupool

template <>
struct fmt::formatter<cupool::Outside> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  auto format(const cupool::Outside& outside, format_context& context) const -> format_context::iterator;
};
