// See table.hpp.
#include "tools/table.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/format.hpp"
#include "base/say.hpp"
#include "tools/sums.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kNarrowest = 6;
constexpr size_t kPipeWidth = 80;

// What a terminal shows of a text in UTF-8: the letters, not the bytes.
bool begins_letter(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_letter));
}

std::string cut_to(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  size_t end = 0;
  for (size_t letters = 0; end < text.size(); ++end) {
    if (begins_letter(text[end]) && ++letters == width) break;
  }
  return text.substr(0, end) + "~";
}

std::string in_cell(const std::string& cell, size_t width, Table::Align align) {
  std::string shown = cut_to(cell, width);
  shown.insert(align == Table::Align::kLeft ? shown.size() : 0, width - width_of(shown), ' ');
  return shown;
}

// The first or the last of two lines of a title; of one line, the last.
std::string title_line(const std::string& title, bool is_first) {
  const size_t at = title.find('\n');
  if (at == std::string::npos) return is_first ? "" : title;
  return is_first ? title.substr(0, at) : title.substr(at + 1);
}

winsize terminal_size() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

std::string shorten(uint64_t number, uint64_t whole_up_to, double step, const char* units) {
  if (number <= whole_up_to) return std::to_string(number);
  auto value = static_cast<double>(number);
  size_t unit = 0;
  // Rounded it must not reach a fourth digit.
  while (value >= (step == 1000 ? 999.5 : 1023.5)) {
    value /= step;
    ++unit;
  }
  return make_text("{:.{}f}{}", value, value < 99.95 ? 1 : 0, units[unit - 1]);
}

}  // namespace

size_t terminal_width() { return terminal_size().ws_col; }
size_t terminal_height() { return terminal_size().ws_row; }

std::string short_bytes(uint64_t bytes) { return shorten(bytes, 1023, 1024, "KMGTPE"); }
std::string short_count(uint64_t count) { return shorten(count, 99999, 1000, "kMGTPE"); }
std::string short_share(double share) {
  // Only all of it is 100 %.
  return share >= 1 ? "100%" : make_text("{:.1f}%", std::min(share * 100, 99.9));
}

std::string short_reuse(uint64_t reused, uint64_t first_uses) {
  const uint64_t all = plus(reused, first_uses);
  return all == 0 ? "-" : short_share(share(reused, all));
}

std::vector<std::string> Table::lines() const {
  std::vector<Column> columns = columns_;
  size_t total = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    for (const bool is_first : {true, false})
      columns[i].width = std::max(columns[i].width, width_of(title_line(columns[i].title, is_first)));
    for (const auto& cells : rows_) columns[i].width = std::max(columns[i].width, width_of(cells[i]));
    total += columns[i].width;
  }
  const size_t most = terminal_width();
  const size_t gaps = columns.empty() ? 0 : columns.size() - 1;
  const size_t gap = most != 0 && total + 2 * gaps > most ? 1 : 2;
  total += gap * gaps;
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
  std::vector<std::string> out;
  const auto add_line = [&](auto&& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i != 0) line += std::string(gap, ' ');
      line += in_cell(cell_of(i), columns[i].width, columns[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out.push_back(std::move(line));
  };
  const bool has_two = std::any_of(columns.begin(), columns.end(), [](const Column& one) {
    return one.title.find('\n') != std::string::npos;
  });
  if (has_two) add_line([&](size_t i) { return title_line(columns[i].title, true); });
  add_line([&](size_t i) { return title_line(columns[i].title, false); });
  for (const auto& cells : rows_) add_line([&](size_t i) { return cells[i]; });
  return out;
}

void Table::print() const {
  for (const std::string& line : lines()) say("{}\n", line);
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
