// See table.hpp.
#include "tools/table.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/format.hpp"
#include "base/say.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kNarrowest = 6;
constexpr size_t kPipeWidth = 100;

void print_cell(const std::string& cell, size_t width, Table::Align align) {
  std::string shown = cell.size() > width ? cell.substr(0, width - 1) + "~" : cell;
  shown.insert(align == Table::Align::kLeft ? shown.size() : 0, width - shown.size(), ' ');
  say("{}", shown);
}

}  // namespace

size_t terminal_width() {
  winsize size;
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

void Table::print() const {
  std::vector<Column> columns = columns_;
  size_t total = columns.empty() ? 0 : 2 * (columns.size() - 1);
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i].width = columns[i].title.size();
    for (const auto& cells : rows_) columns[i].width = std::max(columns[i].width, cells[i].size());
    total += columns[i].width;
  }
  const size_t most = terminal_width();
  while (most != 0 && total > most) {
    Column* widest = nullptr;
    for (Column& column : columns) {
      if (column.align == Align::kLeft && (widest == nullptr || column.width > widest->width))
        widest = &column;
    }
    if (widest == nullptr || widest->width <= kNarrowest) break;
    --widest->width;
    --total;
  }
  const auto print_row = [&](auto&& cell_of) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i != 0) say("  ");
      print_cell(cell_of(i), columns[i].width, columns[i].align);
    }
    say("\n");
  };
  print_row([&](size_t i) { return columns[i].title; });
  for (const auto& cells : rows_) print_row([&](size_t i) { return cells[i]; });
}

std::string printable(std::string_view text) {
  std::string out(text);
  flatten(out.data(), out.size());
  return out;
}

void print_wrapped(const std::string& text, size_t indent) {
  const size_t terminal = terminal_width();
  const size_t width = std::max<size_t>(terminal == 0 ? kPipeWidth : terminal, indent + 20);
  size_t at = 0;
  while (at < text.size()) {
    size_t end = std::min(at + width - indent, text.size());
    if (end < text.size()) {
      const size_t space = text.rfind(' ', end);
      if (space != std::string::npos && space > at) end = space;
    }
    say("{}{}\n", std::string(indent, ' '), text.substr(at, end - at));
    at = end;
    while (at < text.size() && text[at] == ' ') ++at;
  }
}

}  // namespace cupool::tools
