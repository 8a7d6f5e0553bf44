// A text table that fits the terminal: numbers right-aligned, words left-aligned, and the widest column of
// words truncated where a line would be too long. Nothing is truncated in a file or pipe. Figures are written
// short, so that a table of them fits 80 columns; exact ones are for the JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cupool::tools {

class Table {
 public:
  enum class Align { kLeft, kRight };

  // A title may have two lines.
  void column(std::string title, Align align) { columns_.push_back({std::move(title), align, 0}); }
  // pre: as many cells as columns.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // The titles and the rows, as they are printed.
  std::vector<std::string> lines() const;
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

// "512", "3.5M", "140G": bytes in at most five letters, in powers of 1024.
std::string short_bytes(uint64_t bytes);
// "99999", "124k", "3.5M": a count in at most five letters, in powers of 1000.
std::string short_count(uint64_t count);
// "99.5%", and "100%" only where it is all.
std::string short_share(double share);
// The share of the allocations whose memory an earlier block had; "-" where that is known of none.
std::string short_reuse(uint64_t reused, uint64_t first_uses);

// The size of the terminal on stdout, or 0 if stdout is not one.
size_t terminal_width();
size_t terminal_height();
// Makes untrusted text safe for a terminal: nothing in it moves the cursor, ends the line or changes its
// direction.
std::string printable(std::string_view text);
// Wraps a paragraph to the terminal, each line indented by `indent` spaces.
void print_wrapped(const std::string& text, size_t indent);

}  // namespace cupool::tools
