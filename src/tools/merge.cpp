// `cupool merge`: the JSON reports of many processes (ranks, hosts) as one table with a sum, or as one JSON
// object.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/say.hpp"
#include "stats/counters.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/report.hpp"
#include "tools/sums.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

struct File {
  std::string path;
  Report report;
};

bool add_file(const std::string& path, std::vector<File>* out) {
  std::string error;
  auto report = Report::read(path.c_str(), &error);
  if (!report) {
    say(stderr, "cupool: {}\n", error);
    return false;
  }
  out->push_back({path, std::move(*report)});
  return true;
}

// Identifies a process among all hosts. Reports of older versions have no instance.
std::string process_of(const Report& report) {
  if (std::string instance = report.text("instance"); !instance.empty()) return instance;
  return report.text("host") + '\n' + report.text("program") + '\n' + report.text("rank") + '\n' +
         std::to_string(report.count("pid"));
}

// A process may have written several reports, at signals and at exit, and a file may be named twice: the
// report with the highest counts is the latest.
void count_once(std::vector<File>* files) {
  const auto counted = [](const Report& report) {
    return report.count("allocations") + report.count("frees") + report.count("submissions");
  };
  std::map<std::string, size_t> kept;
  std::vector<File> out;
  for (File& file : *files) {
    const auto [entry, is_new] = kept.try_emplace(process_of(file.report), out.size());
    if (is_new) {
      out.push_back(std::move(file));
      continue;
    }
    File& other = out[entry->second];
    say(stderr, "cupool: {} and {} are of the same process; the later one counts\n", other.path, file.path);
    if (counted(file.report) > counted(other.report)) other = std::move(file);
  }
  *files = std::move(out);
}

double fragmentation(uint64_t live, uint64_t reserved) {
  return live >= reserved ? 0 : 1 - share(live, reserved);
}

using Totals = std::map<std::string, uint64_t>;

// Whether the peak of live memory is only known to be at least so high.
template <typename Get>
bool is_bound(Get&& get) {
  return get("peak_live_most_bytes") > get("peak_live_bytes");
}

// One process, or all of them. `host`: whether some blocks spilled to the host's memory, somewhere.
template <typename Get>
std::vector<std::string> cells(std::string rank, std::string node, std::string process, Get&& get,
                               std::string mode, bool host) {
  std::vector<std::string> out = {std::move(rank),
                                  std::move(node),
                                  std::move(process),
                                  short_count(get("allocations")),
                                  short_reuse(get("reused"), get("first_uses")),
                                  short_bytes(get("peak_live_bytes")) + (is_bound(get) ? "+" : ""),
                                  short_bytes(get("peak_reserved_bytes"))};
  if (host) out.push_back(short_bytes(get("peak_host_reserved_bytes")));
  out.push_back(short_count(plus(get("segments_allocated"), get("segments_released"))));
  out.push_back(short_count(get("out_of_memory")));
  out.push_back(std::move(mode));
  return out;
}

// Every counter that this version knows, added up.
Totals add_up(const std::vector<File>& files) {
  Totals totals;
  for (const File& file : files) {
    stats::visit(stats::Sums{}, [&](const stats::CounterInfo& info, uint64_t) {
      totals[info.name] = plus(totals[info.name], file.report.count(info.name));
    });
  }
  return totals;
}

void print_table(const std::vector<File>& files, const Totals& totals) {
  const bool host = totals.at("peak_host_reserved_bytes") != 0;
  Table table;
  for (const char* title : {"rank", "host", "process"}) table.column(title, Table::Align::kLeft);
  for (const char* title : {"allocs", "reused", "peak\nlive", "peak\nreserved"})
    table.column(title, Table::Align::kRight);
  if (host) table.column("peak\nhost", Table::Align::kRight);
  for (const char* title : {"driver\ncalls", "out of\nmemory"}) table.column(title, Table::Align::kRight);
  table.column("mode", Table::Align::kLeft);
  for (const auto& [path, report] : files) {
    const std::string process =
        printable(report.text("program")) + "[" + std::to_string(report.count("pid")) + "]";
    const std::string rank = printable(report.text("rank"));
    table.row(cells(
        rank.empty() ? "-" : rank, printable(report.text("host")), process,
        [&report = report](const char* name) { return report.count(name); }, printable(report.text("mode")),
        host));
  }
  table.row(cells(
      "all", "", std::to_string(files.size()) + (files.size() == 1 ? " process" : " processes"),
      [&](const char* name) { return totals.at(name); }, "", host));
  table.print();
  if (is_bound([&](const char* name) { return totals.at(name); }))
    print_wrapped("+ at least: several threads allocate there; CUPOOL_STATS_EXACT=yes says it exactly", 0);
}

void print_json(const std::vector<File>& files, const Totals& totals) {
  Answer answer = {{"processes", files.size()}};
  answer.update(Answer(totals));
  const double idle = fragmentation(totals.at("peak_live_bytes"), totals.at("peak_reserved_bytes"));
  answer["fragmentation"] = std::round(idle * 1e4) / 1e4;
  answer["reports"] = Answer::array();
  for (const auto& [path, report] : files) {
    answer["reports"].push_back({{"file", path},
                                 {"rank", report.text("rank")},
                                 {"host", report.text("host")},
                                 {"pid", report.count("pid")}});
  }
  print(answer);
}

// By rank; reports without a rank come last.
bool comes_before(const File& a, const File& b) {
  const std::string x = a.report.text("rank");
  const std::string y = b.report.text("rank");
  if (x.empty() != y.empty()) return y.empty();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

}  // namespace

int merge(const Arguments& arguments) {
  std::vector<File> files;
  bool all_read = true;
  for (const std::string& path : arguments.operands) all_read = add_file(path, &files) && all_read;
  if (files.empty()) {
    if (all_read) say(stderr, "cupool: merge needs the files that CUPOOL_STATS=json left\n");
    return all_read ? kMisuse : 1;
  }
  count_once(&files);
  std::stable_sort(files.begin(), files.end(), comes_before);
  const Totals totals = add_up(files);
  if (arguments.has("--json")) {
    print_json(files, totals);
  } else {
    print_table(files, totals);
  }
  return all_read ? 0 : 1;
}

}  // namespace cupool::tools
