// `cupool merge`: the JSON reports of many processes (ranks, hosts) as one table with a sum, or as one JSON
// object.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.hpp"
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

// All of a file; false: errno says why. A directory can be opened, and only reading it fails.
bool read_file(const char* path, std::string* out) {
  FILE* const file = fopen(path, "re");
  if (file == nullptr) return false;
  char part[4096];
  for (size_t size; (size = fread(part, 1, sizeof part, file)) > 0;) out->append(part, size);
  const int error = ferror(file) != 0 ? errno : 0;
  fclose(file);
  errno = error;
  return error == 0;
}

bool read_report(const char* path, std::vector<Report>* out) {
  std::string text;
  if (!read_file(path, &text)) {
    fprintf(stderr, "cupool: cannot read %s: %s\n", path, strerror(errno));
    return false;
  }
  size_t fault = 0;
  auto json = Json::parse(text, &fault);
  if (!json || !json->is_object() || (*json)["cupool"].kind() != Json::Kind::kString) {
    fprintf(stderr, "cupool: %s is not a report of cupool (CUPOOL_STATS=json)%s\n", path,
            json ? "" : (", at character " + std::to_string(fault)).c_str());
    return false;
  }
  out->push_back({path, std::move(*json)});
  return true;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

double fragmentation(uint64_t live, uint64_t reserved) {
  return live >= reserved ? 0 : 1 - ratio(static_cast<double>(live), static_cast<double>(reserved));
}

std::string print(const char* format, double value) {
  char text[32];
  snprintf(text, sizeof text, format, value);
  return text;
}

template <typename Get>
std::vector<std::string> cells(std::string rank, std::string host, std::string process, Get&& get,
                               std::string mode) {
  const uint64_t hits = get("hits_at_once") + get("hits_after_wait");
  return {std::move(rank),
          std::move(host),
          std::move(process),
          std::to_string(get("allocations")),
          print("%.1f%%", 100 * ratio(static_cast<double>(hits), static_cast<double>(get("allocations")))),
          print_bytes(get("peak_live_bytes")).text,
          print_bytes(get("peak_reserved_bytes")).text,
          print("%.0f%%", 100 * fragmentation(get("peak_live_bytes"), get("peak_reserved_bytes"))),
          std::to_string(get("segments_allocated") + get("segments_released")),
          print("%.3f", static_cast<double>(get("saved_ns")) * 1e-9),
          std::to_string(get("out_of_memory")),
          std::move(mode)};
}

using Totals = std::map<std::string, uint64_t>;

// Every counter that this version knows, added up.
Totals add_up(const std::vector<Report>& reports) {
  Totals totals;
  for (const Report& report : reports) {
    stats::visit(stats::Sums{}, [&](const stats::CounterInfo& info, uint64_t) {
      totals[info.name] += report.json[info.name].count();
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
    const std::string process = json["program"].text() + "[" + std::to_string(json["pid"].count()) + "]";
    const std::string& rank = json["rank"].text();
    table.row(cells(
        rank.empty() ? "-" : rank, json["host"].text(), process,
        [&](const char* name) { return json[name].count(); }, json["mode"].text()));
  }
  table.row(cells(
      "all", "", std::to_string(reports.size()) + " processes",
      [&](const char* name) { return totals.at(name); }, ""));
  table.print();
}

void print_json(const std::vector<Report>& reports, const Totals& totals) {
  printf("{\"processes\":%zu", reports.size());
  for (const auto& [name, value] : totals)
    printf(",\"%s\":%llu", name.c_str(), static_cast<unsigned long long>(value));
  printf(",\"fragmentation\":%.4f,\"reports\":[",
         fragmentation(totals.at("peak_live_bytes"), totals.at("peak_reserved_bytes")));
  const char* separator = "";
  for (const Report& report : reports) {
    printf("%s{\"file\":%s,\"rank\":%s,\"host\":%s,\"pid\":%llu}", separator, quoted(report.file).c_str(),
           quoted(report.json["rank"].text()).c_str(), quoted(report.json["host"].text()).c_str(),
           static_cast<unsigned long long>(report.json["pid"].count()));
    separator = ",";
  }
  printf("]}\n");
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
      fprintf(stderr, "cupool: merge does not know %s\n", arguments[i]);
      return kMisuse;
    } else {
      all_read = read_report(arguments[i], &reports) && all_read;
    }
  }
  if (reports.empty()) {
    if (all_read) fprintf(stderr, "cupool: merge needs the files that CUPOOL_STATS=json left\n");
    return all_read ? kMisuse : 1;
  }
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
