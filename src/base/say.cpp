// See say.hpp. fmt's own print would throw where a write fails.
#if defined(__GNUC__) && !defined(__clang__)
// g++ 13 sees a copy past the end in fmt's code, where there is none. Before all headers: it is told of lines
// in the C++ library's.
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif
#define FMT_HEADER_ONLY
#include "base/say.hpp"

namespace cupool {

std::string make_text_packed(fmt::string_view format, fmt::format_args args) {
  return fmt::vformat(format, args);
}

void say_packed(std::FILE* file, fmt::string_view format, fmt::format_args args) {
  const std::string text = make_text_packed(format, args);
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace cupool
