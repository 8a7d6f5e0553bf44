// `cupool replay`: what a program would have needed under other settings and other allocators.
#include <cstdio>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "replay/rules.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/play.hpp"
#include "tools/progress.hpp"
#include "tools/replays.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

using replay::Figures;

struct Row {
  const NamedProgram* of;
  std::string with;
  Setting setting;
  Figures figures;
  bool is_pools = false;
  // Only what the trace says of itself is known, and how full its memory was is not.
  bool is_recorded = false;
};

std::string print_time(uint64_t ns) {
  if (ns == 0) return "-";
  return ns < 10'000'000 ? make_text("{} us", ns / 1000) : make_text("{} ms", ns / 1'000'000);
}

void print_table(const std::vector<Row>& rows) {
  Table table;
  table.column("trace", Table::Align::kLeft);
  table.column("with", Table::Align::kLeft);
  for (const char* title :
       {"peak\nreserved", "frag-\nmented", "driver\ncalls", "hits", "waits", "time", "failed"})
    table.column(title, Table::Align::kRight);
  const NamedProgram* before = nullptr;
  for (const Row& row : rows) {
    const Figures& figures = row.figures;
    const double hits = figures.allocations == 0
                            ? 0
                            : static_cast<double>(figures.hits) / static_cast<double>(figures.allocations);
    table.row({row.of == before ? "" : printable(row.of->name), printable(row.with),
               short_bytes(figures.peak_reserved),
               row.is_recorded ? "-" : short_share(figures.fragmentation()),
               short_count(figures.driver_calls), row.is_recorded ? "-" : short_share(hits),
               short_count(figures.waits), print_time(figures.ns),
               row.is_recorded ? "-" : short_count(figures.failed)});
    before = row.of;
  }
  table.print();
  for (const Row& row : rows) {
    const uint64_t compared = row.figures.served_alike + row.figures.served_otherwise;
    if (row.figures.served_otherwise != 0 && row.setting.empty())
      say("{}: {} of {} allocations were served otherwise than in the recorded run, which had other "
          "settings, "
          "another version of cupool, refused requests (a replay has none of them), or threads that "
          "allocated "
          "at the same moment\n",
          printable(row.of->name), short_count(row.figures.served_otherwise), short_count(compared));
    if (row.figures.peak_taken > row.figures.peak_reserved + row.figures.peak_reserved / 200)
      say("{} with {}: the driver gives {} for that, in its steps of 2 MiB\n", printable(row.of->name),
          printable(row.with), print_bytes(row.figures.peak_taken));
  }
}

Answer to_json(const Row& row) {
  const Figures& figures = row.figures;
  Answer answer = {{"with", row.with},
                   {"set", row.setting},
                   {"peak_reserved_bytes", figures.peak_reserved},
                   {"driver_calls", figures.driver_calls},
                   {"waits", figures.waits}};
  if (row.is_recorded) return answer;
  answer.update({{"fragmentation", figures.fragmentation()},
                 {"most_on_a_device_bytes", figures.most_on_a_device},
                 {"allocations", figures.allocations},
                 {"hits", figures.hits},
                 {"failed_allocations", figures.failed},
                 {"reserved_bytes", figures.last_reserved},
                 {"ns", figures.ns}});
  if (!row.is_pools) return answer;
  answer.update({{"peak_taken_bytes", figures.peak_taken},
                 {"thread_hits", figures.kept},
                 {"slab_hits", figures.slab},
                 {"range_hits", figures.range},
                 {"hits_after_wait", figures.after_wait},
                 {"misses", figures.missed},
                 {"segments_allocated", figures.segments_taken},
                 {"segments_released", figures.segments_given},
                 {"peak_live_bytes", figures.pool_peak_live},
                 {"compared", figures.compared},
                 {"agreed", figures.agreed},
                 {"served_alike", figures.served_alike},
                 {"served_otherwise", figures.served_otherwise}});
  return answer;
}

void print_json(const std::vector<NamedProgram>& programs, const std::vector<Row>& rows) {
  Answer answer = Answer::array();
  for (const NamedProgram& one : programs) {
    Answer of = {{"trace", one.name},
                 {"form", one.program.form},
                 {"allocations", one.program.blocks},
                 {"held_before", one.program.first_held},
                 {"not_played", one.program.left_out},
                 {"threads", one.program.threads},
                 {"devices", one.program.devices()}};
    Answer with = Answer::array();
    for (const Row& row : rows) {
      if (row.of != &one) continue;
      if (!row.is_recorded) of["peak_asked_bytes"] = row.figures.peak_live;
      with.push_back(to_json(row));
    }
    of["rows"] = with;
    answer.push_back(of);
  }
  print(answer);
}

// One after the other: a device is not shared.
int replay_on_gpu(const Arguments& arguments, const std::vector<NamedProgram>& programs,
                  const std::vector<Setting>& settings) {
  std::vector<Row> rows;
  const size_t all = programs.size() * (settings.size() + 1);
  {
    Progress progress;
    for (size_t i = 0; i < programs.size(); ++i) {
      const auto play = [&](const Setting* setting) {
        std::string error;
        const auto figures = play_on_device(arguments.operands[i], setting, &error);
        const std::string with = setting != nullptr ? describe(*setting) : "the driver alone";
        if (!figures) {
          say(stderr, "cupool: {} with {}: {}\n", printable(programs[i].name), with, printable(error));
          return false;
        }
        rows.push_back({&programs[i], with, setting != nullptr ? *setting : Setting{}, *figures});
        progress.show("playing", rows.size(), all);
        return true;
      };
      for (const Setting& setting : settings) {
        if (!play(&setting)) return 1;
      }
      if (!play(nullptr)) return 1;
    }
  }
  arguments.has("--json") ? print_json(programs, rows) : print_table(rows);
  return 0;
}

}  // namespace

int replay(const Arguments& arguments) {
  if (arguments.operands.empty()) {
    say(stderr, "cupool: replay needs a trace; cupool replay -h says which\n");
    return kMisuse;
  }
  std::vector<Setting> settings = {{}};
  for (const auto& [name, value] : arguments.flags) {
    if (name != "--set") continue;
    const auto setting = parse_setting(value);
    if (!setting) return kMisuse;
    settings.push_back(*setting);
  }
  int code = 0;
  const std::vector<NamedProgram> programs = load_programs(arguments, &code);
  if (programs.empty()) return code;
  if (arguments.has("--play")) {
    if (programs.size() == 1) return play_here(programs[0]);
    say(stderr, "cupool: --play takes one trace\n");
    return kMisuse;
  }
  if (arguments.has("--gpu")) return replay_on_gpu(arguments, programs, settings);
  std::vector<Replay> replays;
  for (const NamedProgram& one : programs) {
    for (const Setting& setting : settings)
      replays.push_back({&one.program, setting, one.conditions, std::nullopt, ""});
  }
  {
    Progress progress;
    play_all(replays, [&](size_t done) { progress.show("replaying", done, replays.size()); });
  }
  std::vector<Row> rows;
  size_t at = 0;
  for (const NamedProgram& one : programs) {
    for (const Setting& setting : settings) {
      const Replay& played = replays[at++];
      if (!played.figures) {
        say(stderr, "cupool: {} with {}: {}\n", printable(one.name), describe(setting), played.error);
        code = 1;
        continue;
      }
      rows.push_back({&one, describe(setting), setting, *played.figures, true, false});
    }
    if (one.program.has_recorded) {
      Figures recorded;
      recorded.peak_reserved = one.program.recorded.peak_reserved;
      recorded.driver_calls = one.program.recorded.driver_calls;
      recorded.waits = one.program.recorded.waits;
      rows.push_back({&one, "as recorded", {}, recorded, false, true});
    }
    for (const replay::Rules rules : replay::kAllRules)
      rows.push_back(
          {&one, name_of(rules), {}, play_by(rules, one.program, one.conditions.capacity), false, false});
  }
  arguments.has("--json") ? print_json(programs, rows) : print_table(rows);
  return code;
}

}  // namespace cupool::tools
