// `cupool top`: the processes in the registry and their devices as tables that are refreshed each second, or
// once as tables, as JSON or as OpenMetrics text.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "report/metrics.hpp"
#include "tools/attach.hpp"
#include "tools/code_names.hpp"
#include "tools/commands.hpp"
#include "tools/holders.hpp"
#include "tools/json.hpp"
#include "tools/keys.hpp"
#include "tools/registries.hpp"
#include "tools/sums.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

// How long processes are given to publish fresh figures.
constexpr int kAnswerMs = 100;

void ask_for_figures(Registries& registries) { registries.ask({{}, true, -1, 0, 0}, kAnswerMs); }

// What the list can be sorted by: on a terminal with a key, else with --sort.
struct Order {
  char key;
  const char* name;
  bool (*comes_before)(const Neighbour& a, const Neighbour& b);
};

template <uint64_t neighbours::Figures::*figure>
bool has_more(const Neighbour& a, const Neighbour& b) {
  return a.entry.figures.*figure > b.entry.figures.*figure;
}

constexpr Order kOrders[] = {
    {'r', "reserved", has_more<&neighbours::Figures::reserved>},
    {'l', "live", has_more<&neighbours::Figures::live>},
    {'c', "cached", has_more<&neighbours::Figures::cached>},
    {'k', "peak", has_more<&neighbours::Figures::peak>},
    {'w', "waits", has_more<&neighbours::Figures::waits_avoided>},
    {'p', "pid", [](const Neighbour& a, const Neighbour& b) { return a.entry.pid < b.entry.pid; }},
    {'u', "user", [](const Neighbour& a, const Neighbour& b) { return a.user < b.user; }},
    {'n', "name",
     [](const Neighbour& a, const Neighbour& b) {
       return std::string_view(a.entry.program) < b.entry.program;
     }},
    {'d', "device",
     [](const Neighbour& a, const Neighbour& b) {
       return a.entry.figures.ordinal < b.entry.figures.ordinal;
     }},
};

const Order* find_order(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kOrders), std::end(kOrders),
                                         [&](const Order& one) { return name == one.name; });
  return found == std::end(kOrders) ? nullptr : found;
}

std::string names_of_orders() {
  std::string out;
  for (const Order& one : kOrders) out += std::string(out.empty() ? "" : ", ") + one.name;
  return out;
}

// Entries of the same value stay as Registries has them: the largest first.
void sort_by(const Order& order, std::vector<Neighbour>* all) {
  std::stable_sort(all->begin(), all->end(), order.comes_before);
}

// The figures of several entries together.
struct Sum {
  neighbours::Figures figures{};
  std::set<uint64_t> processes;

  void add(const neighbours::Entry& entry) {
    using neighbours::Figures;
    for (uint64_t Figures::*const one :
         {&Figures::live, &Figures::cached, &Figures::reserved, &Figures::peak, &Figures::reused,
          &Figures::first_uses, &Figures::waits_avoided, &Figures::host})
      figures.*one = plus(figures.*one, entry.figures.*one);
    figures.capacity = std::max(figures.capacity, entry.figures.capacity);
    processes.insert(entry.process);
  }
  std::string count() const {
    return std::to_string(processes.size()) + (processes.size() == 1 ? " process" : " processes");
  }
};

// Columns that would say the same in every row, or nothing, are left out: 80 have to be enough.
struct Columns {
  bool user;  // there are several
  bool host;  // some blocks spilled
};

void add_row(Table* table, const Columns& columns, std::string pid, std::string user, std::string program,
             std::string device, std::string limit, const neighbours::Figures& figures) {
  std::vector<std::string> cells = {std::move(pid)};
  if (columns.user) cells.push_back(std::move(user));
  for (std::string* const one : {&program, &device}) cells.push_back(std::move(*one));
  for (const uint64_t bytes : {figures.live, figures.cached, figures.reserved, figures.peak})
    cells.push_back(short_bytes(bytes));
  if (columns.host) cells.push_back(short_bytes(figures.host));
  cells.push_back(std::move(limit));
  cells.push_back(short_reuse(figures.reused, figures.first_uses));
  cells.push_back(short_count(figures.waits_avoided));
  table->row(std::move(cells));
}

std::vector<std::string> process_lines(const std::vector<Neighbour>& all) {
  const auto is_other = [&](const Neighbour& one) { return one.user != all.front().user; };
  const Columns columns{
      std::any_of(all.begin(), all.end(), is_other),
      std::any_of(all.begin(), all.end(), [](const Neighbour& one) { return one.entry.figures.host != 0; })};
  Table table;
  table.column("pid", Table::Align::kRight);
  if (columns.user) table.column("user", Table::Align::kLeft);
  table.column("program", Table::Align::kLeft);
  for (const char* title : {"dev", "live", "cached", "reserved", "peak"})
    table.column(title, Table::Align::kRight);
  if (columns.host) table.column("host", Table::Align::kRight);
  for (const char* title : {"limit", "reused", "waits\navoided"}) table.column(title, Table::Align::kRight);
  Sum sum;
  for (const auto& [entry, user] : all) {
    const neighbours::Figures& figures = entry.figures;
    sum.add(entry);
    add_row(&table, columns, std::to_string(entry.pid), user, printable(entry.program),
            std::to_string(figures.ordinal),
            figures.limit == kUnlimited ? "none" : short_bytes(figures.limit), figures);
  }
  add_row(&table, columns, "all", "", sum.count(), "", "", sum.figures);
  return table.lines();
}

// By UUID: processes may number the same device differently.
std::vector<std::string> device_lines(const std::vector<Neighbour>& all) {
  Table table;
  table.column("device", Table::Align::kLeft);
  for (const char* title : {"capacity", "reserved", "of it", "idle"})
    table.column(title, Table::Align::kRight);
  table.column("by", Table::Align::kRight);
  std::map<std::string, Sum> devices;
  for (const auto& [entry, user] : all)
    devices[std::string(report::print_uuid(entry.figures.device).text)].add(entry);
  for (const auto& [uuid, sum] : devices) {
    const neighbours::Figures& figures = sum.figures;
    const bool is_known = figures.capacity != 0;
    table.row({uuid, is_known ? short_bytes(figures.capacity) : "unknown", short_bytes(figures.reserved),
               is_known ? short_share(share(figures.reserved, figures.capacity)) : "",
               short_bytes(figures.cached), sum.count()});
  }
  return table.lines();
}

std::vector<std::string> make_lines(const std::vector<Neighbour>& all) {
  if (all.empty()) return {"No process uses device memory under cupool now."};
  std::vector<std::string> lines = process_lines(all);
  lines.emplace_back();
  for (std::string& line : device_lines(all)) lines.push_back(std::move(line));
  return lines;
}

void print_once(const std::vector<Neighbour>& all) {
  for (const std::string& line : make_lines(all)) say("{}\n", line);
}

// Who holds the memory of a process, as the trace says that it records.
std::vector<std::string> holders_of(const neighbours::Entry& entry) {
  constexpr size_t kMost = 5;
  const std::string name = make_text("{}[{}]", printable(entry.program), entry.pid);
  const std::string path = entry.same_namespace ? find_trace_of(entry.pid) : "";
  if (path.empty())
    return {make_text("{} records no trace to a file: CUPOOL_TRACE begins one, or cupool trace {}", name,
                      entry.pid)};
  CodeNames names({});
  Holders holders(names);
  if (!holders.read(path, {}))
    return {make_text("{} records {}, which cannot be read", name, printable(path))};
  std::vector<std::string> lines = holder_lines(holders, kMost);
  lines.insert(lines.begin(), make_text("Who holds the memory of {}, {} of device memory in all:", name,
                                        print_bytes(holders.device_bytes())));
  return lines;
}

// As many lines as the terminal has, under one that names the keys.
void draw(const std::vector<Neighbour>& all, const Order& order, const std::vector<std::string>& holders) {
  std::string keys;
  for (const Order& one : kOrders) keys += one.key;
  std::vector<std::string> lines = make_lines(all);
  lines.insert(lines.begin(),
               make_text("sorted by {}; {} sort by another column, 1-9: holders, q quits", order.name, keys));
  if (!holders.empty()) lines.emplace_back();
  lines.insert(lines.end(), holders.begin(), holders.end());
  const size_t height = terminal_height();
  if (height > 2 && lines.size() >= height) {
    const size_t hidden = lines.size() - (height - 2);
    lines.resize(height - 2);
    lines.push_back(make_text("{} more lines: cupool top --once shows all", hidden));
  }
  say("\033[H\033[J");
  for (const std::string& line : lines) say("{}\n", line);
  fflush(stdout);
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
                                   {"waits_avoided", figures.waits_avoided},
                                   {"host_bytes", figures.host},
                                   {"capacity_bytes", figures.capacity}});
    answer["processes"].back()["reused_share"] =
        report::is_reuse_known(figures) ? Answer(std::round(report::reused_ratio(figures) * 1e4) / 1e4)
                                        : Answer();
    answer["processes"].back()["limit_bytes"] =
        figures.limit == kUnlimited ? Answer() : Answer(figures.limit);
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

std::vector<Neighbour> read_sorted(Registries& registries, const Order& order) {
  auto all = registries.read();
  sort_by(order, &all);
  return all;
}

void watch(Registries registries, const Order* order) {
  constexpr int kRefreshMs = 1000;
  Keys keys;
  std::vector<std::string> holders;
  for (;;) {
    ask_for_figures(registries);
    const std::vector<Neighbour> all = read_sorted(registries, *order);
    draw(all, *order, holders);
    const char key = keys.wait(kRefreshMs);
    // Of the process in that line; 0: of none any more.
    const auto line = static_cast<size_t>(key - '0');
    if (key >= '0' && key <= '9')
      holders =
          line >= 1 && line <= all.size() ? holders_of(all[line - 1].entry) : std::vector<std::string>();
    if (key == 'q' || key == Keys::kClosed) return;
    for (const Order& one : kOrders) {
      if (key == one.key) order = &one;
    }
    // Users may have come or gone, and a registry may have been made anew.
    registries = Registries();
  }
}

}  // namespace

int top(const Arguments& arguments) {
  const Order* order = &kOrders[0];
  for (const auto& [flag, value] : arguments.flags) {
    if (flag == "--sort") order = find_order(value);
    if (order != nullptr) continue;
    say(stderr, "cupool: top cannot sort by {}; it sorts by {}\n", value, names_of_orders());
    return kMisuse;
  }
  Registries registries;
  const bool as_json = arguments.has("--json");
  const bool as_metrics = arguments.has("--openmetrics");
  if (!registries.any()) registries.explain_none();
  registries.warn_left_out();
  if (as_json || as_metrics) {
    // A monitor gets an answer even if it is empty.
    if (registries.any()) ask_for_figures(registries);
    const auto all = read_sorted(registries, *order);
    if (as_json) print_json(all);
    const int error = as_json ? 0 : print_openmetrics(all);
    return error == 0 ? 0 : cannot_write(error);
  }
  if (!registries.any()) return 1;
  const bool once = arguments.has("--once") || isatty(STDOUT_FILENO) == 0;
  if (once) {
    ask_for_figures(registries);
    print_once(read_sorted(registries, *order));
    return 0;
  }
  watch(std::move(registries), order);
  return 0;
}

}  // namespace cupool::tools
