// `cupool merge`: the JSON reports of many processes (ranks, hosts) as one table with a sum, or as one JSON
// object.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "stats/counters.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

struct Report {
  std::string file;
  Json json;
};

bool add_report(const char* path, std::vector<Report>* out) {
  std::string error;
  auto json = read_report(path, &error);
  if (!json) {
    say(stderr, "cupool: {}\n", error);
    return false;
  }
  out->push_back({path, std::move(*json)});
  return true;
}

// Of one process among all hosts. Reports of older versions have no instance.
std::string process_of(const Json& json) {
  if (!json["instance"].text().empty()) return json["instance"].text();
  return json["host"].text() + '\n' + json["program"].text() + '\n' + json["rank"].text() + '\n' +
         std::to_string(json["pid"].count());
}

// A process may have left several reports, at signals and at its end, and a file may be named twice: the one
// that has counted most is the last.
void count_once(std::vector<Report>* reports) {
  const auto counted = [](const Report& report) {
    return report.json["allocations"].count() + report.json["frees"].count() +
           report.json["submissions"].count();
  };
  std::map<std::string, size_t> kept;
  std::vector<Report> out;
  for (Report& report : *reports) {
    const auto [entry, is_new] = kept.try_emplace(process_of(report.json), out.size());
    if (is_new) {
      out.push_back(std::move(report));
      continue;
    }
    Report& other = out[entry->second];
    say(stderr, "cupool: {} and {} are of the same process; the later one counts\n", other.file, report.file);
    if (counted(report) > counted(other)) other = std::move(report);
  }
  *reports = std::move(out);
}

// As much as a number can hold.
uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double fragmentation(uint64_t live, uint64_t reserved) {
  return live >= reserved ? 0 : 1 - ratio(static_cast<double>(live), static_cast<double>(reserved));
}

template <typename Get>
std::vector<std::string> cells(std::string rank, std::string host, std::string process, Get&& get,
                               std::string mode) {
  const uint64_t hits = plus(get("hits_at_once"), get("hits_after_wait"));
  return {
      std::move(rank),
      std::move(host),
      std::move(process),
      std::to_string(get("allocations")),
      make_text("{:.1f}%", 100 * ratio(static_cast<double>(hits), static_cast<double>(get("allocations")))),
      print_bytes(get("peak_live_bytes")).text,
      print_bytes(get("peak_reserved_bytes")).text,
      make_text("{:.0f}%", 100 * fragmentation(get("peak_live_bytes"), get("peak_reserved_bytes"))),
      std::to_string(plus(get("segments_allocated"), get("segments_released"))),
      make_text("{:.3f}", static_cast<double>(get("saved_ns")) * 1e-9),
      std::to_string(get("out_of_memory")),
      std::move(mode)};
}

using Totals = std::map<std::string, uint64_t>;

// Every counter that this version knows, added up.
Totals add_up(const std::vector<Report>& reports) {
  Totals totals;
  for (const Report& report : reports) {
    stats::visit(stats::Sums{}, [&](const stats::CounterInfo& info, uint64_t) {
      totals[info.name] = plus(totals[info.name], report.json[info.name].count());
    });
  }
  return totals;
}

void print_table(const std::vector<Report>& reports, const Totals& totals) {
  Table table;
  for (const char* title : {"rank", "host", "process"}) table.column(title, Table::Align::kLeft);
  for (const char* title : {"allocations", "pooled", "peak live", "peak reserved", "fragm.", "driver calls",
                            "saved s", "failed"}) {
    table.column(title, Table::Align::kRight);
  }
  table.column("mode", Table::Align::kLeft);
  for (const Report& report : reports) {
    const Json& json = report.json;
    const std::string process =
        printable(json["program"].text()) + "[" + std::to_string(json["pid"].count()) + "]";
    const std::string rank = printable(json["rank"].text());
    table.row(cells(
        rank.empty() ? "-" : rank, printable(json["host"].text()), process,
        [&](const char* name) { return json[name].count(); }, printable(json["mode"].text())));
  }
  table.row(cells(
      "all", "", std::to_string(reports.size()) + " processes",
      [&](const char* name) { return totals.at(name); }, ""));
  table.print();
}

void print_json(const std::vector<Report>& reports, const Totals& totals) {
  say("{{\"processes\":{}", reports.size());
  for (const auto& [name, value] : totals) say(",\"{}\":{}", name, value);
  say(",\"fragmentation\":{:.4f},\"reports\":[",
      fragmentation(totals.at("peak_live_bytes"), totals.at("peak_reserved_bytes")));
  const char* separator = "";
  for (const Report& report : reports) {
    say("{}{{\"file\":{},\"rank\":{},\"host\":{},\"pid\":{}}}", separator, quoted(report.file),
        quoted(report.json["rank"].text()), quoted(report.json["host"].text()), report.json["pid"].count());
    separator = ",";
  }
  say("]}}\n");
}

// Ranks in order; what has none comes last.
bool comes_before(const Report& a, const Report& b) {
  const std::string& x = a.json["rank"].text();
  const std::string& y = b.json["rank"].text();
  if (x.empty() != y.empty()) return y.empty();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

}  // namespace

int merge(int count, char** arguments) {
  bool as_json = false;
  std::vector<Report> reports;
  bool all_read = true;
  for (int i = 0; i < count; ++i) {
    if (strcmp(arguments[i], "--json") == 0) {
      as_json = true;
    } else if (arguments[i][0] == '-' && arguments[i][1] != '\0') {
      say(stderr, "cupool: merge does not know {}\n", arguments[i]);
      return kMisuse;
    } else {
      all_read = add_report(arguments[i], &reports) && all_read;
    }
  }
  if (reports.empty()) {
    if (all_read) say(stderr, "cupool: merge needs the files that CUPOOL_STATS=json left\n");
    return all_read ? kMisuse : 1;
  }
  count_once(&reports);
  std::stable_sort(reports.begin(), reports.end(), comes_before);
  const Totals totals = add_up(reports);
  if (as_json) {
    print_json(reports, totals);
  } else {
    print_table(reports, totals);
  }
  return all_read ? 0 : 1;
}

}  // namespace cupool::tools
