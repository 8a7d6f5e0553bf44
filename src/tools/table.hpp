// A text table that fits the terminal: numbers right-aligned, words left-aligned, and the widest column of
// words truncated where a line would be too long. Nothing is truncated in a file or pipe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cupool::tools {

class Table {
 public:
  enum class Align { kLeft, kRight };

  void column(std::string title, Align align) { columns_.push_back({std::move(title), align, 0}); }
  // pre: as many cells as columns.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Prints to stdout.
  void print() const;

 private:
  struct Column {
    std::string title;
    Align align;
    size_t width;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The width of the terminal on stdout, or 0 if stdout is not one.
size_t terminal_width();
// Makes untrusted text safe for a terminal: nothing in it moves the cursor, ends the line or changes its
// direction.
std::string printable(std::string_view text);
// Wraps a paragraph to the terminal, each line indented by `indent` spaces.
void print_wrapped(const std::string& text, size_t indent);

}  // namespace cupool::tools
