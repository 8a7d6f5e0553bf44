// Texts of any length, made with the formats of format.hpp, for programs that may allocate: the command and
// the simulated driver. Not for the library. A write that fails is left in the stream's error flag.
#pragma once

#include <cstdio>
#include <string>

#include "base/format.hpp"

namespace cupool {

std::string make_text_packed(fmt::string_view format, fmt::format_args args);
void say_packed(std::FILE* file, fmt::string_view format, fmt::format_args args);

template <typename... Args>
std::string make_text(Format<Args...> format, const Args&... args) {
  return make_text_packed(format, packed(Argument<Args>(args)...));
}

template <typename... Args>
void say(std::FILE* file, Format<Args...> format, const Args&... args) {
  say_packed(file, format, packed(Argument<Args>(args)...));
}
template <typename... Args>
void say(Format<Args...> format, const Args&... args) {
  say_packed(stdout, format, packed(Argument<Args>(args)...));
}

}  // namespace cupool
