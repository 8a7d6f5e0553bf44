// See text.hpp.
#include "see/text.hpp"

#include <algorithm>
#include <cmath>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "see/findings.hpp"
#include "tools/holders.hpp"
#include "tools/table.hpp"

namespace cupool::see {
namespace {

constexpr size_t kMostRows = 8;
constexpr size_t kBar = 20;
constexpr size_t kUsualWidth = 100;

std::string bar(uint64_t part, uint64_t whole) {
  const size_t full =
      whole == 0
          ? 0
          : static_cast<size_t>(std::llround(static_cast<double>(part) / static_cast<double>(whole) * kBar));
  return std::string(std::min(full, kBar), '#') + std::string(kBar - std::min(full, kBar), '.');
}

// Eight heights of a letter, from nothing to the most.
void print_curve(std::FILE* file, const Picture& picture, const Model& model) {
  constexpr size_t kColumns = 72;
  std::vector<uint64_t> most(kColumns);
  uint64_t highest = 0;
  const uint64_t span = model.last - model.first;
  for (size_t moment = 0; moment < picture.times.size(); ++moment) {
    uint64_t sum = 0;
    for (const Series& one : picture.live) {
      Life life;
      life.kind = one.kind;
      if (!model.is_hosts(life)) sum += one.bytes[moment];
    }
    const uint64_t begin = picture.times[moment] - model.first;
    const uint64_t end = moment + 1 < picture.times.size() ? picture.times[moment + 1] - model.first : begin;
    const auto column = [&](uint64_t time) {
      return span == 0 ? 0
                       : std::min(kColumns - 1,
                                  static_cast<size_t>(static_cast<double>(time) / static_cast<double>(span) *
                                                      static_cast<double>(kColumns)));
    };
    for (size_t at = column(begin); at <= column(end); ++at) most[at] = std::max(most[at], sum);
    highest = std::max(highest, sum);
  }
  if (highest == 0) return;
  static constexpr const char* kHeights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string line;
  for (const uint64_t one : most)
    line +=
        kHeights[one == 0
                     ? 0
                     : 1 + static_cast<size_t>(static_cast<double>(one) / static_cast<double>(highest) * 7)];
  say(file, "\nDevice memory that the program holds, from {} to {} of the trace; at most {}:\n  {}\n",
      tools::print_moment(model.since_began(model.first)), tools::print_moment(model.ns()),
      print_bytes(highest), trusted(line));
}

using Row = std::pair<uint32_t, uint64_t>;

// The holders with the most of something, by the frames that stand for them.
void print_holders(std::FILE* file, const char* title, const Holders& holders,
                   const std::vector<HolderSums>& sums, uint64_t HolderSums::*bytes,
                   uint64_t HolderSums::*count, const char* one_unit, const char* units) {
  std::vector<uint32_t> rows;
  uint64_t all = 0;
  for (uint32_t i = 0; i < sums.size(); ++i) {
    all += sums[i].*bytes;
    if (sums[i].*bytes != 0) rows.push_back(i);
  }
  if (rows.empty()) return;
  std::stable_sort(rows.begin(), rows.end(),
                   [&](uint32_t a, uint32_t b) { return sums[a].*bytes > sums[b].*bytes; });
  say(file, "\n{}:\n", trusted(title));
  const size_t width =
      std::max<size_t>(tools::terminal_width() == 0 ? kUsualWidth : tools::terminal_width(), 60);
  for (size_t i = 0; i < std::min(kMostRows, rows.size()); ++i) {
    const HolderSums& one = sums[rows[i]];
    std::string name = tools::printable(holders.table()[rows[i]].text());
    const std::string figures =
        make_text("  {} {} in {} {}", trusted(bar(one.*bytes, all)), print_bytes(one.*bytes),
                  print_count(one.*count), trusted(one.*count == 1 ? one_unit : units));
    constexpr size_t kFigures = 58;
    const size_t room = width > kFigures + 4 ? width - kFigures - 2 : 20;
    if (name.size() > room) name = name.substr(0, room - 3) + "...";
    say(file, "{}{}  {}\n", trusted(figures),
        trusted(std::string(kFigures - std::min(kFigures, figures.size()), ' ')), name);
  }
  if (rows.size() > kMostRows) say(file, "  and {} more\n", print_count(rows.size() - kMostRows));
}

void print_waits(std::FILE* file, const Model& model, const Picture& picture) {
  struct Sum {
    uint64_t count = 0;
    uint64_t ns = 0;
    uint64_t most = 0;
  };
  std::vector<Sum> sums(picture.call_rows.size());
  for (const CallCell& cell : picture.call_cells) {
    sums[cell.row].count += cell.count;
    sums[cell.row].ns += cell.ns;
    sums[cell.row].most = std::max(sums[cell.row].most, cell.most_ns);
  }
  std::vector<size_t> rows;
  for (size_t i = 0; i < sums.size(); ++i) rows.push_back(i);
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return sums[a].ns > sums[b].ns; });
  if (rows.empty() || sums[rows[0]].ns == 0) return;
  say(file, "\nHost waits, and the pool's calls of the driver:\n");
  for (size_t i = 0; i < std::min(kMostRows, rows.size()); ++i) {
    const Sum& one = sums[rows[i]];
    const CallRow& row = picture.call_rows[rows[i]];
    say(file, "  {} {:>9} in {:>7}, {:>9} at most  {} ({})\n", trusted(bar(one.ns, model.ns())),
        trusted(print_seconds(one.ns)), trusted(print_count(one.count)), trusted(print_seconds(one.most)),
        tools::printable(row.what), tools::printable(row.why));
  }
}

}  // namespace

void print_text(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture,
                const std::vector<std::string>& sentences) {
  const tools::TraceAbout& about = model.about();
  say(file, "{}[{}] on {}{}{}: {} events in {}\n", about.program, about.pid, about.host,
      about.rank.empty() ? "" : ", rank ", about.rank, print_count(model.reader().events()),
      print_seconds(model.ns()));
  print_curve(file, picture, model);
  const std::vector<HolderSums> sums = sums_of_faces(model, holders, picture);
  print_holders(file, "Who held device memory when it was most", holders, sums, &HolderSums::held_bytes,
                &HolderSums::held_blocks, "block", "blocks");
  print_holders(file, "Who allocated, over all of it", holders, sums, &HolderSums::bytes, &HolderSums::calls,
                "call", "calls");
  print_waits(file, model, picture);
  say(file, "\n");
  for (const std::string& sentence : sentences) {
    say(file, "- {}\n", sentence);
  }
}

}  // namespace cupool::see
