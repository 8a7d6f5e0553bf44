// `cupool top`: the processes in the registry as a table that is refreshed each second, or once as a table,
// as JSON or as OpenMetrics text.
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "report/metrics.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/registries.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

// How long processes are given to publish fresh figures.
constexpr int kAnswerMs = 100;

void ask_for_figures(Registries& registries) { registries.ask({{}, true, -1, 0, 0}, kAnswerMs); }

void print_table(const std::vector<Neighbour>& all) {
  Table table;
  table.column("pid", Table::Align::kRight);
  for (const char* title : {"user", "program"}) table.column(title, Table::Align::kLeft);
  for (const char* title :
       {"device", "live", "cached", "reserved", "peak reserved", "reused", "waits avoided"}) {
    table.column(title, Table::Align::kRight);
  }
  for (const auto& [entry, user] : all) {
    const neighbours::Figures& figures = entry.figures;
    table.row({std::to_string(entry.pid), user, printable(entry.program), std::to_string(figures.ordinal),
               print_bytes(figures.live).text, print_bytes(figures.cached).text,
               print_bytes(figures.reserved).text, print_bytes(figures.peak).text,
               make_text("{:.1f}%", 100 * report::reused_ratio(figures)),
               std::to_string(figures.waits_avoided)});
  }
  table.print();
}

void print_json(const std::vector<Neighbour>& all) {
  Answer answer = {{"processes", Answer::array()}};
  for (const auto& [entry, user] : all) {
    const neighbours::Figures& figures = entry.figures;
    answer["processes"].push_back({{"pid", entry.pid},
                                   {"user", user},
                                   {"program", entry.program},
                                   {"device", figures.ordinal},
                                   {"uuid", report::print_uuid(figures.device).text},
                                   {"live_bytes", figures.live},
                                   {"cached_bytes", figures.cached},
                                   {"reserved_bytes", figures.reserved},
                                   {"peak_reserved_bytes", figures.peak},
                                   {"reused", figures.reused},
                                   {"first_uses", figures.first_uses},
                                   {"reused_share", std::round(report::reused_ratio(figures) * 1e4) / 1e4},
                                   {"waits_avoided", figures.waits_avoided}});
  }
  print(answer);
}

// 0, or the errno of a write that failed.
int print_openmetrics(const std::vector<Neighbour>& all) {
  std::vector<neighbours::Entry> entries;
  std::vector<const char*> users;
  for (const Neighbour& one : all) {
    entries.push_back(one.entry);
    users.push_back(one.user.c_str());
  }
  char buffer[4096];
  fflush(stdout);
  report::Writer out(STDOUT_FILENO, buffer, sizeof buffer);
  report::write_metrics(out, entries.data(), entries.size(), users.data());
  out.flush();
  return out.error();
}

}  // namespace

int top(const Arguments& arguments) {
  Registries registries;
  const bool as_json = arguments.has("--json");
  const bool as_metrics = arguments.has("--openmetrics");
  if (!registries.any()) registries.explain_none();
  registries.warn_left_out();
  if (as_json || as_metrics) {
    // A monitor gets an answer even if it is empty.
    if (registries.any()) ask_for_figures(registries);
    const auto all = registries.read();
    if (as_json) print_json(all);
    const int error = as_json ? 0 : print_openmetrics(all);
    return error == 0 ? 0 : cannot_write(error);
  }
  if (!registries.any()) return 1;
  const bool once = arguments.has("--once") || isatty(STDOUT_FILENO) == 0;
  for (;;) {
    ask_for_figures(registries);
    const auto all = registries.read();
    if (!once) say("\033[H\033[J");
    print_table(all);
    if (once) return 0;
    fflush(stdout);
    const timespec second{1, 0};
    nanosleep(&second, nullptr);
    // Users may have come or gone, and a registry may have been made anew.
    registries = Registries();
  }
}

}  // namespace cupool::tools
