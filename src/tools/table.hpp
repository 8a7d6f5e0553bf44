// Rows of text in columns that fit the terminal: numbers to the right, words to the left, and the widest
// column of words is cut where a line would be too long. Into a file or a pipe nothing is cut.
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
  // To stdout.
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

// The width of the terminal that stdout is, or 0 when it is none.
size_t terminal_width();
// Somebody else's text on a line of a terminal: nothing in it moves the cursor, ends the line or changes its
// direction.
std::string printable(std::string_view text);
// Words of a paragraph in lines that fit, each behind `indent` spaces.
void print_wrapped(const std::string& text, size_t indent);

}  // namespace cupool::tools
