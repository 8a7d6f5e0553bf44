// `cupool fit`: whether a program would fit a device of that size, by how much, with which settings, and who
// holds the memory if it would not. The device of a replay is as small as what is asked about, less what was
// taken besides the pool's when the trace was recorded.
#include <algorithm>
#include <cstdio>
#include <map>
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

using replay::Do;
using replay::Figures;
using replay::Step;

// From the one that changes least to the one that changes most.
const std::vector<Setting>& remedies() {
  static const std::vector<Setting> all = {
      {},
      {"CUPOOL_SEGMENTS=mapped"},
      {"CUPOOL_CHUNK=8M", "CUPOOL_SEGMENTS=mapped"},
      {"CUPOOL_CHUNK=2M", "CUPOOL_SEGMENTS=mapped"},
      {"CUPOOL_CHUNK=2M", "CUPOOL_SEGMENTS=mapped", "CUPOOL_THREAD_CACHE=0"},
  };
  return all;
}

// What is live on the fullest device at the moment when that is most: by stack, or by size.
struct Holder {
  std::string who;
  uint64_t bytes = 0;
  uint64_t blocks = 0;
};
struct Peak {
  uint64_t bytes = 0;
  size_t step = 0;
  int device = 0;
};

class Live {
 public:
  explicit Live(const replay::Program& program)
      : program_(program), sizes_(program.blocks), devices_(program.blocks), live_(64) {}
  // The bytes on the device of the step.
  uint64_t play(const Step& step) {
    if (step.what == Do::kAllocate) {
      sizes_[step.block] = step.bytes;
      devices_[step.block] = static_cast<uint8_t>(program_.places[step.place].device);
      return live_[devices_[step.block]] += step.bytes;
    }
    if (step.what == Do::kFree) end(step.block);
    if (step.what == Do::kContextEnds) {
      for (uint32_t i = 0; i < program_.blocks; ++i) {
        if (sizes_[i] != 0 && devices_[i] == program_.places[step.place].device) end(i);
      }
    }
    return 0;
  }
  template <typename F>
  void visit(int device, F&& f) const {
    for (uint32_t i = 0; i < program_.blocks; ++i) {
      if (sizes_[i] != 0 && devices_[i] == device) f(i, sizes_[i]);
    }
  }

 private:
  void end(uint32_t block) {
    live_[devices_[block]] -= sizes_[block];
    sizes_[block] = 0;
  }
  const replay::Program& program_;
  std::vector<uint64_t> sizes_;
  std::vector<uint8_t> devices_;
  std::vector<uint64_t> live_;
};

Peak peak_of(const replay::Program& program) {
  Peak peak;
  Live live(program);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const uint64_t bytes = live.play(program.steps[i]);
    if (bytes > peak.bytes) peak = {bytes, i, program.places[program.steps[i].place].device};
  }
  return peak;
}

std::vector<Holder> holders_at(const replay::Program& program, const Peak& peak) {
  constexpr size_t kMostShown = 5;
  Live live(program);
  for (size_t i = 0; i <= peak.step && i < program.steps.size(); ++i) live.play(program.steps[i]);
  std::map<std::string, Holder> found;
  live.visit(peak.device, [&](uint32_t block, uint64_t bytes) {
    const uint32_t stack = block < program.stacks.size() ? program.stacks[block] : 0;
    const std::string who =
        stack != 0 && stack < program.stack_names.size() && !program.stack_names[stack].empty()
            ? program.stack_names[stack]
            : make_text("blocks of {}", print_bytes(bytes));
    Holder& holder = found[who];
    holder.who = who;
    holder.bytes += bytes;
    ++holder.blocks;
  });
  std::vector<Holder> out;
  out.reserve(found.size());
  for (auto& [who, holder] : found) out.push_back(std::move(holder));
  std::stable_sort(out.begin(), out.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  if (out.size() > kMostShown) out.resize(kMostShown);
  return out;
}

struct Verdict {
  bool fits = false;
  Setting setting;     // with which it fits
  uint64_t least = 0;  // the pool's peak then, or the smallest of all that were tried
  uint64_t as_it_is = 0;
  bool gives_back = false;  // it fits because the pool gives memory back when there is no more
};

// False: a replay failed, after an error message.
bool judge(const NamedProgram& one, uint64_t room, Verdict* verdict) {
  std::vector<Replay> replays;
  for (const Setting& setting : remedies()) {
    for (const bool is_bounded : {false, true}) {
      replays.push_back({&one.program, setting, one.conditions, std::nullopt, ""});
      replays.back().conditions.capacity = is_bounded ? room : uint64_t{1} << 40;
    }
  }
  {
    Progress progress;
    play_all(replays, [&](size_t done) { progress.show("fitting", done, replays.size()); });
  }
  for (const Replay& replay : replays) {
    if (replay.figures) continue;
    say(stderr, "cupool: {}: {}\n", describe(replay.setting), replay.error);
    return false;
  }
  verdict->as_it_is = verdict->least = replays[0].figures->most_on_a_device;
  for (size_t i = 0; i < replays.size(); i += 2) {
    const Figures& free = *replays[i].figures;
    const Figures& bounded = *replays[i + 1].figures;
    const bool fits = free.most_on_a_device <= room;
    if (!verdict->fits && (fits || bounded.failed == 0)) {
      verdict->fits = true;
      verdict->gives_back = !fits;
      verdict->setting = replays[i].setting;
      verdict->least = fits ? free.most_on_a_device : bounded.most_on_a_device;
    }
    if (!verdict->fits) verdict->least = std::min(verdict->least, free.most_on_a_device);
  }
  return true;
}

std::string print_set(const Setting& setting) {
  std::string out;
  for (const std::string& entry : setting) out += (out.empty() ? "" : " ") + entry;
  return out;
}

void print_text(const NamedProgram& one, uint64_t memory, uint64_t room, const Verdict& verdict,
                const Peak& peak) {
  const std::string name = printable(one.name);
  const uint64_t beside = memory - room;
  constexpr uint64_t kClose = 32;
  const bool is_close = verdict.fits && room - std::min(room, verdict.least) < memory / kClose;
  if (verdict.fits && verdict.setting.empty() && !verdict.gives_back) {
    say("{} fits {}: the pool takes {} at most, and {} stay free\n", name, print_bytes(memory),
        print_bytes(verdict.least), print_bytes(room - verdict.least));
  } else if (verdict.fits && verdict.setting.empty()) {
    say("{} fits {}: the pool would take {}, and gives memory back when there is no more\n", name,
        print_bytes(memory), print_bytes(verdict.as_it_is));
  } else if (verdict.fits) {
    say("{} fits {} with {}: the pool takes {} at most, {} less than without, and {} stay free\n", name,
        print_bytes(memory), print_set(verdict.setting), print_bytes(verdict.least),
        print_bytes(verdict.as_it_is - std::min(verdict.as_it_is, verdict.least)),
        print_bytes(room - std::min(room, verdict.least)));
  } else {
    say("{} does not fit {}: {} are missing even with the best settings that were tried\n", name,
        print_bytes(memory), print_bytes(verdict.least > room ? verdict.least - room : 0));
  }
  if (is_close) say("so close to the limit that a run with other timing may be refused memory\n");
  if (beside != 0) {
    say("counted with it: {}, the most that was taken besides while it held blocks when it was recorded: "
        "contexts, modules, memory of other kinds, other processes\n",
        print_bytes(beside));
  } else if (one.program.beside == 0) {
    say("not counted: what contexts, modules and libraries take besides, which this trace does not tell\n");
  }
  if (verdict.fits) return;
  say("the program itself holds {} at most", print_bytes(peak.bytes));
  if (peak.bytes > room)
    say(", {} more than there is: CUPOOL_SPILL={} would put that much into host memory, which is slow",
        print_bytes(peak.bytes - room), print_size({(peak.bytes - room + (64 << 20)) >> 20 << 20, false}));
  say("; most of it is held by\n");
  for (const Holder& holder : holders_at(one.program, peak))
    say("  {} in {} {}: {}\n", print_bytes(holder.bytes), holder.blocks,
        holder.blocks == 1 ? "block" : "blocks", printable(holder.who));
}

Answer to_json(const NamedProgram& one, uint64_t memory, uint64_t room, const Verdict& verdict,
               const Peak& peak) {
  Answer holders = Answer::array();
  for (const Holder& holder : holders_at(one.program, peak))
    holders.push_back({{"who", holder.who}, {"bytes", holder.bytes}, {"blocks", holder.blocks}});
  return {{"trace", one.name},
          {"memory_bytes", memory},
          {"beside_bytes", memory - room},
          {"fits", verdict.fits},
          {"set", verdict.setting},
          {"gives_back", verdict.gives_back},
          {"peak_reserved_bytes", verdict.as_it_is},
          {"least_reserved_bytes", verdict.least},
          {"missing_bytes", verdict.fits || verdict.least <= room ? 0 : verdict.least - room},
          {"peak_asked_bytes", peak.bytes},
          {"holders", holders}};
}

}  // namespace

int fit(const Arguments& arguments) {
  if (arguments.operands.empty() || !arguments.has("--memory")) {
    say(stderr, "cupool: fit needs a trace, and --memory with a size such as 24G\n");
    return kMisuse;
  }
  int code = 0;
  std::vector<NamedProgram> programs = load_programs(arguments, &code, true);
  if (programs.empty()) return code;
  Answer answer = Answer::array();
  bool fits = true;
  for (NamedProgram& one : programs) {
    const uint64_t memory = one.conditions.capacity;
    const uint64_t room = memory - std::min(memory, one.program.beside);
    Verdict verdict;
    if (!judge(one, room, &verdict)) return 1;
    fits = fits && verdict.fits;
    const Peak peak = peak_of(one.program);
    if (arguments.has("--json"))
      answer.push_back(to_json(one, memory, room, verdict, peak));
    else
      print_text(one, memory, room, verdict, peak);
  }
  if (arguments.has("--json")) print(answer);
  return fits ? 0 : 1;
}

}  // namespace cupool::tools
