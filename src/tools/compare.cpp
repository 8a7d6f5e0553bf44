// `cupool compare`: runs a program bare and under the pool in turns and says what the pool gains. Time is
// measured in runs to which nothing is added: bare is without the library. Device memory is measured in runs
// of its own, in which the library asks the driver after each allocation how much of the device is in use
// (CUPOOL_WATCH_DEVICE), with the pool and with the pool switched off; that takes time, so these runs are not
// timed. A first run of each warms caches and shows whether the program works at all.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/say.hpp"
#include "config/process.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/launch.hpp"
#include "tools/processes.hpp"
#include "tools/samples.hpp"
#include "tools/scratch.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kUsualRuns = 5;
constexpr size_t kMostRuns = 1000;
constexpr size_t kMemoryRuns = 3;  // device memory hardly varies

enum class Side { kBare, kPool };

// What a run printed on one stream, without keeping it.
struct Printed {
  uint64_t bytes = 0;
  uint64_t hash = 0;
  bool operator==(const Printed&) const = default;
};

struct Run {
  End end;
  double seconds = 0;
  uint64_t device_bytes = 0;  // 0: not known
  uint64_t served = 0;        // allocations, by the pool
  Printed out;
  Printed err;
};

struct Runs {
  std::vector<double> seconds;
  std::vector<double> device_bytes;
  std::vector<Printed> out;
  std::vector<Printed> err;
  uint64_t served = 0;         // in the run that had most
  std::optional<End> failure;  // of the first run that failed, after which there are no more
};

struct Comparison {
  Runs bare;
  Runs pool;
};

// Removes our library from the libraries that are preloaded.
void remove_preload() {
  const std::string all = config::preloaded();
  std::string rest;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find_first_of(" :", at), all.size());
    const std::string one = all.substr(at, end - at);
    if (!one.empty() && one.substr(one.rfind('/') + 1) != "libcupool.so")
      rest += (rest.empty() ? "" : ":") + one;
    at = end + 1;
  }
  if (rest.empty()) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", rest.c_str(), 1);
  }
}

Printed look_at(const std::string& path) {
  Printed out{0, 0xcbf29ce484222325};
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char part[65536];
  ssize_t got = 0;
  while (file >= 0 && (got = read(file, part, sizeof part)) > 0) {
    out.bytes += static_cast<uint64_t>(got);
    for (ssize_t i = 0; i < got; ++i)
      out.hash = (out.hash ^ static_cast<unsigned char>(part[i])) * 0x100000001b3;
  }
  if (file >= 0) close(file);
  return out;
}

// What a failed run said, for the user.
void show(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char part[4096];
  ssize_t got = 0;
  while (file >= 0 && (got = read(file, part, sizeof part)) > 0) {
    if (write(STDERR_FILENO, part, static_cast<size_t>(got)) < 0) break;
  }
  if (file >= 0) close(file);
}

class Runner {
 public:
  explicit Runner(const std::vector<std::string>& words)
      : words_(words), stdin_at_(lseek(STDIN_FILENO, 0, SEEK_CUR)) {}

  // None: it could not be run, or the command was interrupted.
  std::optional<Run> run(Side side, bool watches) {
    const Scratch scratch;
    if (!scratch.made()) return std::nullopt;
    const std::string out = scratch.path() + "/out";
    const std::string err = scratch.path() + "/err";
    const uint64_t begin = now_ns();
    const pid_t child = fork();
    if (child == 0) {
      Scratch::become_child();
      if (!prepare(side, watches, scratch, out, err)) _exit(kCannotRun);
      _exit(become(words_));
    }
    // What the program leaves behind would disturb the next run.
    const Outcome outcome = wait_for_all(child, scratch);
    if (outcome.program.how == End::How::kUnknown || Scratch::is_interrupted()) return std::nullopt;
    Run run;
    run.end = outcome.program;
    run.seconds = static_cast<double>(outcome.ended_ns - begin) * 1e-9;
    for (const Process& process : outcome.processes) {
      run.device_bytes = std::max(run.device_bytes, process.device_bytes);
      run.served += pooled_allocations(process.report) + pooled_managed(process.report);
    }
    run.out = look_at(out);
    run.err = look_at(err);
    if (run.end.is_failure()) show(err);
    return run;
  }

 private:
  // In the child: nothing but the environment and the standard streams differs between the runs.
  bool prepare(Side side, bool watches, const Scratch& counts, const std::string& out,
               const std::string& err) {
    if (stdin_at_ >= 0) {
      lseek(STDIN_FILENO, stdin_at_, SEEK_SET);
    } else if (const int empty = open("/dev/null", O_RDONLY); empty >= 0) {
      dup2(empty, STDIN_FILENO);
    }
    if (side == Side::kPool || watches) {
      if (!preload_library()) return false;
      keep_counts(counts);
      if (watches) setenv("CUPOOL_WATCH_DEVICE", "yes", 1);
      if (side == Side::kBare) setenv("CUPOOL_BACKEND", "off", 1);
    } else {
      remove_preload();
    }
    const int out_file = open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int err_file = open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out_file < 0 || err_file < 0) return false;
    dup2(out_file, STDOUT_FILENO);
    dup2(err_file, STDERR_FILENO);
    close(out_file);
    close(err_file);
    return true;
  }

  const std::vector<std::string>& words_;
  off_t stdin_at_;
};

// The runs in their order. Each step is false if the program could not be run.
class Turns {
 public:
  Turns(const std::vector<std::string>& words, Comparison* out) : runner_(words), out_(*out) {}

  bool warm_up() { return pair(0, false, &Turns::note_output); }
  bool time(size_t turn) { return pair(turn, false, &Turns::note_time); }
  bool measure_memory(size_t turn) { return pair(turn, true, &Turns::note_memory); }
  bool has_failed() const { return out_.bare.failure || out_.pool.failure; }

 private:
  using Note = void (Turns::*)(Runs& runs, const Run& run);

  // Bare, pool, pool, bare: what drifts meanwhile favours neither.
  bool pair(size_t turn, bool watches, Note note) {
    const Side first = turn % 2 == 0 ? Side::kBare : Side::kPool;
    const Side second = turn % 2 == 0 ? Side::kPool : Side::kBare;
    for (const Side side : {first, second}) {
      const auto run = runner_.run(side, watches);
      if (!run) return false;
      Runs& runs = side == Side::kBare ? out_.bare : out_.pool;
      if (run->end.is_failure()) {
        // With the library in the program, and the driver asked: that is no run without cupool.
        if (!watches) runs.failure = run->end;
      } else {
        (this->*note)(runs, *run);
      }
    }
    return true;
  }
  void note_output(Runs& runs, const Run& run) {
    runs.out.push_back(run.out);
    runs.err.push_back(run.err);
    runs.served = std::max(runs.served, run.served);
  }
  void note_time(Runs& runs, const Run& run) {
    note_output(runs, run);
    runs.seconds.push_back(run.seconds);
  }
  void note_memory(Runs& runs, const Run& run) {
    if (run.device_bytes != 0) runs.device_bytes.push_back(static_cast<double>(run.device_bytes));
  }

  Runner runner_;
  Comparison& out_;
};

std::string output_words(const std::vector<Printed>& bare, const std::vector<Printed>& pool) {
  const auto are_alike = [](const std::vector<Printed>& all) {
    return std::all_of(all.begin(), all.end(), [&](const Printed& one) { return one == all.front(); });
  };
  if (bare.empty() || pool.empty()) return "not compared";
  if (!are_alike(bare)) return "differs from run to run without cupool, so it cannot be compared";
  if (are_alike(pool) && bare.front() == pool.front()) return "the same";
  return "differs under cupool";
}

const char* words_of(Told told) {
  switch (told) {
    case Told::kNothing:
      return "too few runs to tell";
    case Told::kNoise:
      return "within the noise";
    case Told::kSame:
      return "the same within a hundredth";
    case Told::kLess:
      return "less under cupool";
    case Told::kMore:
      return "more under cupool";
  }
  return "";
}

const char* words_of(const std::vector<double>& bare, const std::vector<double>& pool) {
  return bare.empty() || pool.empty() ? "" : words_of(compare_samples(bare, pool));
}

// How much less, as a share of the bare median; below 0: more.
double gain_of(const std::vector<double>& bare, const std::vector<double>& pool) {
  if (bare.empty() || pool.empty()) return 0;
  const double before = spread_of(bare).median;
  return before > 0 ? 1 - spread_of(pool).median / before : 0;
}

std::string percent(double share) { return make_text("{:.1f} %", std::max(share, -share) * 100); }

std::string failure_words(const Comparison& all) {
  const auto& bare = all.bare.failure;
  const auto& pool = all.pool.failure;
  if (bare && pool && bare->how == pool->how && bare->number == pool->number)
    return "the program fails with and without cupool: it " + bare->words();
  if (bare && pool)
    return "the program fails with and without cupool: without it " + bare->words() + ", under it " +
           pool->words();
  if (bare) return "the program fails without cupool: it " + bare->words();
  if (pool) return "the program fails under cupool alone: it " + pool->words();
  return "";
}

std::string verdict(const Comparison& all) {
  if (all.bare.failure || all.pool.failure) return failure_words(all) + ".";
  if (all.pool.served == 0) return "not worth it: there was nothing for cupool to serve.";
  const Told time = compare_samples(all.bare.seconds, all.pool.seconds);
  const Told memory = compare_samples(all.bare.device_bytes, all.pool.device_bytes);
  if (time == Told::kNothing) {
    return make_text("too few runs to tell: at least {} are needed (-n {}).", kFewestRuns, kFewestRuns);
  }
  const std::string seconds = percent(gain_of(all.bare.seconds, all.pool.seconds));
  const std::string bytes = percent(gain_of(all.bare.device_bytes, all.pool.device_bytes));
  const std::string less_memory = memory == Told::kLess ? bytes + " less device memory" : "";
  const std::string more_memory = memory == Told::kMore ? bytes + " more device memory" : "";
  if (time == Told::kLess) {
    if (!more_memory.empty()) return "a trade: " + seconds + " less time for " + more_memory + ".";
    return "worth it: " + seconds + " less time" + (less_memory.empty() ? "" : " and " + less_memory) + ".";
  }
  if (time == Told::kMore) {
    if (!less_memory.empty()) return "a trade: " + less_memory + " for " + seconds + " more time.";
    return "not worth it: " + seconds + " more time" + (more_memory.empty() ? "" : " and " + more_memory) +
           ".";
  }
  const std::string no_time =
      time == Told::kNoise ? "a difference in time is within the noise" : "no less time";
  if (!less_memory.empty()) return "worth it for its memory: " + less_memory + "; " + no_time + ".";
  return "not worth it: " + no_time + (more_memory.empty() ? "" : ", and " + more_memory) + ".";
}

std::string seconds_text(double value) { return make_text("{:.3f} s", value); }
std::string bytes_text(double value) { return std::string(print_bytes(static_cast<uint64_t>(value))); }

// Figures stand in columns of their own, none of which is ever cut for a narrow terminal.
void print_rows(Table* table, const char* what, const std::vector<double>& bare,
                const std::vector<double>& pool, std::string (*text)(double)) {
  const auto row = [&](const char* title, const char* side, const std::vector<double>& samples) {
    if (samples.empty()) return table->row({title, side, "not known", "", ""});
    const Spread spread = spread_of(samples);
    table->row({title, side, text(spread.median), text(spread.least), text(spread.most)});
  };
  row(what, "bare", bare);
  row("", "under cupool", pool);
}

std::string counted_runs(size_t runs) { return make_text("{} {}", runs, runs == 1 ? "run" : "runs"); }

void print_text(const Comparison& all) {
  const std::string failed = failure_words(all);
  if (!failed.empty()) {
    print_wrapped("verdict: " + verdict(all), 0);
    return;
  }
  say("{} of each for time, {} for memory, in turns\n", counted_runs(all.bare.seconds.size()),
      all.bare.device_bytes.size());
  Table table;
  for (const char* const title : {"", ""}) table.column(title, Table::Align::kLeft);
  for (const char* const title : {"median", "least", "most"}) table.column(title, Table::Align::kRight);
  print_rows(&table, "time", all.bare.seconds, all.pool.seconds, seconds_text);
  print_rows(&table, "device memory", all.bare.device_bytes, all.pool.device_bytes, bytes_text);
  table.print();
  for (const auto& [what, told] :
       {std::pair{"time", words_of(all.bare.seconds, all.pool.seconds)},
        std::pair{"device memory", words_of(all.bare.device_bytes, all.pool.device_bytes)}}) {
    if (*told != '\0') say("{}: {}\n", what, told);
  }
  if (!all.bare.device_bytes.empty() || !all.pool.device_bytes.empty()) {
    print_wrapped(
        "device memory: the most in use after an allocation, as the driver says, other processes included",
        0);
  }
  say("stdout: {}\nstderr: {}\n", output_words(all.bare.out, all.pool.out),
      output_words(all.bare.err, all.pool.err));
  print_wrapped("verdict: " + verdict(all), 0);
}

Answer answer_of(const std::vector<double>& bare, const std::vector<double>& pool) {
  const auto side = [](const std::vector<double>& samples) -> Answer {
    if (samples.empty()) return nullptr;
    const Spread spread = spread_of(samples);
    return {{"median", spread.median}, {"least", spread.least}, {"most", spread.most}, {"samples", samples}};
  };
  return {{"bare", side(bare)},
          {"cupool", side(pool)},
          {"gain", bare.empty() || pool.empty() ? Answer(nullptr) : Answer(gain_of(bare, pool))},
          {"told", words_of(bare, pool)}};
}

void print_json(const Comparison& all) {
  const auto end = [](const std::optional<End>& failure) {
    return failure ? Answer(failure->words()) : Answer(nullptr);
  };
  print(Answer{{"bare_failure", end(all.bare.failure)},
               {"cupool_failure", end(all.pool.failure)},
               {"seconds", answer_of(all.bare.seconds, all.pool.seconds)},
               {"device_bytes", answer_of(all.bare.device_bytes, all.pool.device_bytes)},
               {"served_allocations", all.pool.served},
               {"stdout", output_words(all.bare.out, all.pool.out)},
               {"stderr", output_words(all.bare.err, all.pool.err)},
               {"verdict", verdict(all)}});
}

// False: it could not be run.
bool take_turns(const std::vector<std::string>& words, size_t runs, Comparison* all) {
  Turns turns(words, all);
  if (!turns.warm_up()) return false;
  for (size_t i = 0; i < std::min(runs, kMemoryRuns) && !turns.has_failed(); ++i) {
    if (!turns.measure_memory(i)) return false;
  }
  for (size_t i = 0; i < runs && !turns.has_failed(); ++i) {
    if (!turns.time(i)) return false;
  }
  return true;
}

// 0: it is none.
size_t count_of(const std::string& text) {
  char* end = nullptr;
  const unsigned long number = strtoul(text.c_str(), &end, 10);
  const bool good = !text.empty() && text[0] >= '0' && text[0] <= '9' && *end == '\0' && number <= kMostRuns;
  return good ? number : 0;
}

}  // namespace

int compare(const Arguments& arguments) {
  size_t runs = kUsualRuns;
  for (const auto& [flag, value] : arguments.flags) {
    if (flag != "-n") continue;
    runs = count_of(value);
    if (runs == 0) {
      say(stderr, "cupool: -n takes a number of runs from 1 to {}, not \"{}\"\n", kMostRuns, value);
      return kMisuse;
    }
  }
  const std::vector<std::string>& words = arguments.operands;
  if (words.empty()) {
    say(stderr, "cupool: compare needs a program: cupool compare [options] -- app [argument]...\n");
    return kMisuse;
  }
  const Program program = find_program(words[0].c_str());
  if (!program.found) return cannot_run(words[0].c_str(), program.error);
  if (find_library().empty()) return preload_library() ? 0 : kNotFound;
  adopt_orphans();
  Comparison all;
  if (!take_turns(words, runs, &all)) return 1;
  if (arguments.has("--json")) {
    print_json(all);
  } else {
    print_text(all);
  }
  if (all.bare.failure) return all.bare.failure->code();
  return all.pool.failure ? all.pool.failure->code() : 0;
}

}  // namespace cupool::tools
