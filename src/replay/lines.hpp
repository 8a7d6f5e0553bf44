// A text as lines, and a line as words or cells: what the readers of text share. Holds no copy.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

namespace cupool::replay {

// The part up to a mark, which is taken off the text with it.
inline std::string_view take_up_to(std::string_view& text, char mark) {
  const size_t end = text.find(mark);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}
inline std::string_view take_line(std::string_view& text) {
  std::string_view line = take_up_to(text, '\n');
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}
inline std::string_view take_word(std::string_view& line) {
  line.remove_prefix(line.find_first_not_of(" \t") < line.size() ? line.find_first_not_of(" \t")
                                                                 : line.size());
  const size_t end = line.find_first_of(" \t");
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end);
  return word;
}
// All of a word. False: it is no such number.
template <typename Number>
bool read_number(std::string_view word, Number* out, int base = 10) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *out, base);
  return error == std::errc{} && end == word.data() + word.size();
}

}  // namespace cupool::replay
