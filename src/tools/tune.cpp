// `cupool tune`: which options would have served a program better. Every value is tried by a replay; the
// search changes one option at a time, keeps the best, and ends when nothing gains any more.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/progress.hpp"
#include "tools/replays.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

using replay::Figures;

// What is worth a try. The first word is what the option is without it.
struct Candidate {
  const char* name;
  std::vector<const char*> values;
  bool needs_times = false;   // it plays a part only with the times of a trace
  bool needs_mapped = false;  // it says something of mapped segments alone
};
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"CUPOOL_SEGMENTS", {"mapped"}},
      {"CUPOOL_CHUNK", {"4M", "8M", "16M", "64M", "128M"}, false, true},
      {"CUPOOL_SEGMENT_MIN", {"4M", "8M", "16M", "32M", "64M"}},
      {"CUPOOL_SEGMENT_MAX", {"16M", "32M", "64M", "128M", "512M", "1G"}},
      {"CUPOOL_SEGMENT_EXACT", {"4M", "8M", "12M", "32M", "64M", "256M"}},
      {"CUPOOL_SPLIT_MAX", {"32M", "128M", "512M"}},
      {"CUPOOL_SMALL_LIMIT", {"4K", "16K", "128K"}},
      {"CUPOOL_LARGE_ROUND", {"64K", "512K", "2M"}},
      {"CUPOOL_THREAD_CACHE", {"0", "1M", "16M", "64M"}},
      {"CUPOOL_MAX_CACHED", {"64M", "256M", "1G"}},
      {"CUPOOL_DECAY_MS", {"250", "500", "1000", "8000", "0"}, true},
  };
  return all;
}

// Of all programs together.
struct Cost {
  uint64_t reserved = 0;
  uint64_t driver_calls = 0;
  uint64_t waits = 0;
  uint64_t allocations = 0;
  uint64_t live = 0;
  bool is_good = true;  // nothing failed

  uint64_t calls() const { return driver_calls + waits; }
};

enum class Goal { kMemory, kSpeed };

// One trial is worth another's place only if it gains as much.
constexpr double kLeast = 0.005;

bool is_better(const Cost& one, const Cost& than, const Cost& at_first, Goal goal) {
  if (!one.is_good) return false;
  const auto gains = [](uint64_t now, uint64_t before) {
    return static_cast<double>(now) < static_cast<double>(before) * (1 - kLeast);
  };
  if (goal == Goal::kSpeed) {
    const bool is_small = one.reserved <= at_first.reserved + at_first.reserved / 20;
    return is_small && (one.calls() + 2 < than.calls() ||
                        (one.calls() <= than.calls() && gains(one.reserved, than.reserved)));
  }
  // Memory is not bought with a driver call for every few allocations.
  const uint64_t most = std::max(2 * at_first.calls(), at_first.calls() + at_first.allocations / 10);
  if (one.calls() > most) return false;
  return gains(one.reserved, than.reserved) ||
         (one.reserved <= than.reserved && one.calls() + one.calls() / 10 + 2 < than.calls());
}

class Tuner {
 public:
  Tuner(const std::vector<NamedProgram>& programs, Goal goal) : programs_(programs), goal_(goal) {}

  // False: a replay failed, after an error message.
  bool search() {
    progress_.emplace();
    const bool is_good = climb() && prune();
    progress_.reset();
    return is_good;
  }

  const Setting& setting() const { return setting_; }
  const Cost& at_first() const { return at_first_; }
  const Cost& best() const { return best_; }
  // What it costs without one of them.
  const Cost& without(const std::string& entry) const { return known_.at(less(setting_, entry)); }
  size_t tried() const { return known_.size(); }

 private:
  bool climb() {
    if (!try_all({{}})) return false;
    at_first_ = best_ = known_.at({});
    constexpr int kMostRounds = 6;
    for (int round = 0; round < kMostRounds; ++round) {
      if (!try_all(neighbours())) return false;
      const Setting from = setting_;
      for (const Setting& one : neighbours_of(from)) {
        const Cost& cost = known_.at(one);
        if (!is_better(cost, best_, at_first_, goal_)) continue;
        best_ = cost;
        setting_ = one;
      }
      if (setting_ == from) break;
    }
    return true;
  }

  static std::string name_of(const std::string& entry) { return entry.substr(0, entry.find('=')); }
  static Setting less(const Setting& setting, const std::string& entry) {
    Setting out;
    for (const std::string& one : setting) {
      if (one != entry) out.push_back(one);
    }
    return out;
  }
  static bool is_mapped(const Setting& setting) {
    return std::find(setting.begin(), setting.end(), "CUPOOL_SEGMENTS=mapped") != setting.end();
  }

  std::vector<Setting> neighbours() const { return neighbours_of(setting_); }
  std::vector<Setting> neighbours_of(const Setting& from) const {
    const bool has_times = std::any_of(programs_.begin(), programs_.end(),
                                       [](const NamedProgram& one) { return one.program.has_times; });
    std::vector<Setting> out;
    for (const Candidate& candidate : candidates()) {
      if ((candidate.needs_times && !has_times) || (candidate.needs_mapped && !is_mapped(from))) continue;
      for (const char* const value : candidate.values) {
        Setting one;
        for (const std::string& entry : from) {
          if (name_of(entry) != candidate.name) one.push_back(entry);
        }
        one.push_back(std::string(candidate.name) + "=" + value);
        std::sort(one.begin(), one.end());
        if (one != from) out.push_back(one);
      }
    }
    return out;
  }

  // Replays those that are not known yet.
  bool try_all(const std::vector<Setting>& settings) {
    std::vector<Replay> replays;
    for (const Setting& setting : settings) {
      if (known_.count(setting) != 0) continue;
      for (const NamedProgram& one : programs_)
        replays.push_back({&one.program, setting, one.conditions, std::nullopt, ""});
    }
    play_all(replays,
             [&](size_t done) { progress_->show("tuning", done, replays.size(), describe(setting_)); });
    for (const Replay& replay : replays) {
      if (!replay.figures) {
        progress_.reset();
        say(stderr, "cupool: {}: {}\n", describe(replay.setting), replay.error);
        return false;
      }
      const Figures& figures = *replay.figures;
      Cost& cost = known_[replay.setting];
      cost.reserved += figures.peak_reserved;
      cost.driver_calls += figures.driver_calls;
      cost.waits += figures.waits;
      cost.allocations += figures.allocations;
      cost.live += figures.peak_live;
      cost.is_good = cost.is_good && figures.failed == 0;
    }
    return true;
  }

  // An option that gains nothing beside the others goes.
  bool prune() {
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<Setting> fewer;
      for (const std::string& entry : setting_) fewer.push_back(less(setting_, entry));
      if (!try_all(fewer)) return false;
      for (const Setting& one : fewer) {
        if (is_better(best_, known_.at(one), at_first_, goal_)) continue;
        setting_ = one;
        best_ = known_.at(one);
        changed = true;
        break;
      }
    }
    return true;
  }

  const std::vector<NamedProgram>& programs_;
  const Goal goal_;
  std::optional<Progress> progress_;
  std::map<Setting, Cost> known_;
  Setting setting_;
  Cost best_;
  Cost at_first_;
};

std::string print_cost(const Cost& cost) {
  return make_text("{} reserved for {} asked for, {} driver calls, {} waits", print_bytes(cost.reserved),
                   print_bytes(cost.live), cost.driver_calls, cost.waits);
}

// "618 MiB without it": what all the other settings come to, for single savings do not add up.
std::string print_need(const Cost& with, const Cost& without) {
  if (without.reserved > with.reserved) return make_text("{} without it", print_bytes(without.reserved));
  if (without.calls() > with.calls())
    return make_text("{} calls and waits without it, {} with it", without.calls(), with.calls());
  return "the same without it";
}

Answer to_json(const Cost& cost) {
  return {{"peak_reserved_bytes", cost.reserved},
          {"peak_asked_bytes", cost.live},
          {"driver_calls", cost.driver_calls},
          {"waits", cost.waits}};
}

void print_text(const Tuner& tuner) {
  say("as it is: {}\n", print_cost(tuner.at_first()));
  if (tuner.setting().empty()) {
    say("none of {} settings that were tried is better\n", tuner.tried() - 1);
    return;
  }
  size_t width = 0;
  for (const std::string& entry : tuner.setting()) width = std::max(width, entry.size());
  for (const std::string& entry : tuner.setting()) {
    say("{}{}  # {}\n", entry, std::string(width - entry.size(), ' '),
        print_need(tuner.best(), tuner.without(entry)));
  }
  say("with {}: {}\n", tuner.setting().size() == 1 ? "it" : "all of them", print_cost(tuner.best()));
}

void print_json(const Tuner& tuner) {
  Answer set = Answer::array();
  for (const std::string& entry : tuner.setting()) {
    Answer one = to_json(tuner.without(entry));
    set.push_back({{"set", entry}, {"without", one}});
  }
  print({{"before", to_json(tuner.at_first())},
         {"after", to_json(tuner.best())},
         {"set", set},
         {"tried", tuner.tried()}});
}

}  // namespace

int tune(const Arguments& arguments) {
  Goal goal = Goal::kMemory;
  for (const auto& [name, value] : arguments.flags) {
    if (name != "--goal") continue;
    if (value != "memory" && value != "speed") {
      say(stderr, "cupool: --goal takes memory or speed, not \"{}\"\n", value);
      return kMisuse;
    }
    goal = value == "speed" ? Goal::kSpeed : Goal::kMemory;
  }
  if (arguments.operands.empty()) {
    say(stderr, "cupool: tune needs a trace; cupool replay -h says which\n");
    return kMisuse;
  }
  int code = 0;
  const std::vector<NamedProgram> programs = load_programs(arguments, &code);
  if (programs.empty()) return code;
  Tuner tuner(programs, goal);
  if (!tuner.search()) return 1;
  arguments.has("--json") ? print_json(tuner) : print_text(tuner);
  return 0;
}

}  // namespace cupool::tools
