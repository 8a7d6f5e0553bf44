// See verbs.hpp.
#include "tools/verbs.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/say.hpp"
#include "base/version.hpp"
#include "config/parse.hpp"
#include "tools/commands.hpp"
#include "tools/commit.hpp"
#include "tools/launch.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kIndent = 4;

std::string words_of(const Flag& flag) {
  return *flag.value == '\0' ? flag.name : std::string(flag.name) + " " + flag.value;
}

// The candidate that differs in the fewest letters, or empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = config::distance(word, candidate);
    if (d >= least) continue;
    least = d;
    best = candidate;
  }
  return best;
}

// A suggestion for an unknown flag: an option of the library, or another flag.
std::string meant_by(const Verb& verb, std::string_view flag) {
  const std::string_view name = flag.substr(0, flag.find('='));
  const std::string plain(name.substr(std::min(name.size(), name.find_first_not_of('-'))));
  const bool takes_options = std::any_of(verb.flags.begin(), verb.flags.end(), [](const Flag& one) {
    return std::string_view(one.name) == "--set";
  });
  const std::string option = option_name(plain);
  const char* const near_option = config::nearest_name(option);
  const auto set = [&](std::string_view full) {
    std::string out = "--set ";
    for (const char c : full.substr(std::string_view("CUPOOL_").size()))
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return out + "=" + (flag.size() > name.size() ? std::string(flag.substr(name.size() + 1)) : "value");
  };
  if (takes_options && near_option != nullptr && option == near_option) return set(option);
  std::vector<std::string> names = {"--help"};
  for (const Flag& one : verb.flags) names.emplace_back(one.name);
  std::string near = nearest("--" + plain, names);
  if (!near.empty()) return near;
  return takes_options && near_option != nullptr ? set(near_option) : "";
}

const std::vector<Verb>& verbs();

constexpr Flag kDebugPath = {"--debug-path", "folder",
                             "where programs, libraries and debug information are looked for first, by "
                             "build-id or name; may be repeated"};

void print_overview() {
  print_wrapped(
      make_text("cupool {}: a caching pool for device memory under unmodified CUDA programs.", kVersion), 0);
  say("\n");
  for (const Verb& verb : verbs()) {
    std::string line = std::string("cupool ") + verb.name;
    if (!verb.flags.empty()) line += " [options]";
    if (*verb.operands != '\0') line += std::string(" ") + verb.operands;
    print_wrapped(line, 2);
    print_wrapped(verb.summary, 2 + kIndent);
  }
  say("\n");
  print_wrapped(
      "cupool help verb, or -h behind a verb, explains it. Without the command: LD_PRELOAD=libcupool.so app.",
      0);
}

int help(const Arguments& arguments) {
  if (arguments.operands.empty()) {
    print_overview();
    return 0;
  }
  const Verb* const verb = find_verb(arguments.operands[0]);
  if (verb == nullptr) return refuse_verb(arguments.operands[0]);
  print_help(*verb);
  return 0;
}

int version(const Arguments&) {
  say("cupool {} (commit {})\n", kVersion, kCommit);
  return 0;
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"run",
       "[--] app [argument]...",
       "run a program with the pool",
       "Puts libcupool.so in front of LD_PRELOAD and becomes the program. An unknown option or an invalid "
       "value is refused, and the program is not started.",
       {{"--set", "name=value",
         "set an option, as CUPOOL_NAME=value in the environment would; may be repeated"},
        {"--stats", "form",
         "what is reported at the end, as CUPOOL_STATS says it: summary, text, json or off"},
        {"--json", "", "the same as --stats json"},
        {"--report", "",
         "trace the program, and when it has ended write a page about its memory into this directory"}},
       run,
       true},
      {"doctor",
       "[[--] app [argument]...]",
       "say whether the pool serves here, and what to change",
       "Looks at the driver, the library and the settings; with a program it runs that under the pool, says "
       "which of its "
       "memory the pool served, and ends with a verdict. The exit code is the program's; without a program "
       "it is 0 if the pool can serve.",
       {{"--json", "", "one JSON object on stdout; what the program prints goes to stderr"}},
       doctor,
       true},
      {"compare",
       "[--] app [argument]...",
       "say what the pool gains for a program",
       "Runs the program bare and under the pool in turns, and says how much time and device memory each "
       "takes, with the spread, and whether the pool is worth it. What the program prints is compared and "
       "not "
       "shown. A program that fails is reported as that, and its exit code is the command's; otherwise it is "
       "0.",
       {{"-n", "number", "how many runs of each are timed; 5 without it, and up to 3 more measure memory"},
        {"--json", "", "one JSON object on stdout"}},
       compare,
       true},
      {"merge",
       "report.json...",
       "many processes' reports as one table",
       "Adds up the reports that CUPOOL_STATS=json and CUPOOL_STATS_FILE left for each process.",
       {{"--json", "", "one JSON object instead of a table"}},
       merge},
      {"top",
       "",
       "show the processes under the pool",
       "Lists every process of this user that uses device memory under cupool, and the devices; root sees "
       "those of all users. On a terminal the list is refreshed each second: q quits, a letter of the first "
       "line sorts, a digit says who holds the memory of the process in that line, if it records a trace. K, "
       "M and G are powers of 1024 in bytes, k, M and G powers of 1000 in counts.",
       {{"--once", "", "print the list once"},
        {"--sort", "column", "reserved (the default), live, cached, peak, waits, pid, user, name or device"},
        {"--json", "", "one JSON object, once"},
        {"--openmetrics", "", "OpenMetrics text, once, as CUPOOL_METRICS_FILE has it"}},
       top},
      {"trim",
       "PID|all",
       "let processes give idle memory back",
       "Asks one process that cupool top shows, or all of them, to return idle memory to the driver now, and "
       "says how much each returned.",
       {},
       trim},
      {"trace",
       "file|PID",
       "say who held memory, by a trace",
       "Of a process that cupool top shows, records a trace until Ctrl-C, or for as long as --for says, and "
       "writes it to -o, or to PROGRAM-PID.trace; what a process has kept in memory (CUPOOL_TRACE_KEEP) is "
       "written at once. Else reads a file that CUPOOL_TRACE left: whose it is, how many events of which "
       "sort, what the program "
       "held at the end and at most, whether that agrees with the counters, and who held it then: by call "
       "stack, if CUPOOL_STACKS recorded them.",
       {{"--at", "moment",
         "who held memory then: begin, peak, end, or a time since the trace began, as 12.5 or 700ms"},
        {"--top", "number", "how many holders are shown; 10 without it"},
        kDebugPath,
        {"--dump", "", "every event as a line of text, in the order of time"},
        {"--compress", "",
         "write the trace to file.zst, or where -o says; all that reads traces reads those"},
        {"--for", "time", "how long a process is recorded: seconds, or 500ms, 5m or 2h"},
        {"-o", "file", "where a trace is written to; it must not exist"},
        {"--markdown", "", "the events that there are, as docs/trace-format.md has them"}},
       trace},
      {"diff",
       "file [file]",
       "say what memory grew, by traces",
       "Compares what a program held at two moments of one trace, or at the ends of two traces, and says "
       "what "
       "grew and what shrank: by kind and by call stack.",
       {{"--from", "moment",
         "begin (of one trace, without it), peak, end, or a time since the first trace began"},
        {"--to", "moment", "the same of the last trace; end without it"},
        {"--top", "number", "how many are shown; 10 without it"},
        kDebugPath},
       diff},
      {"waits",
       "file",
       "say for what the host waited, by a trace",
       "Adds up the calls in which the host waited, by cause and by call stack, the longest first.",
       {{"--top", "number", "how many are shown; 10 without it"}, kDebugPath},
       waits},
      {"report",
       "file",
       "show a trace as a page, as text, or in another viewer",
       "Makes one HTML page of a file that CUPOOL_TRACE left, which needs no network: memory over time, who "
       "holds it, the segments, sizes, lifetimes, waits; or a file for a viewer that you know. It is written "
       "beside the trace and its name is printed; folded stacks and CSV go to stdout.",
       {{"-o", "file", "where it goes; - is stdout"},
        {"--text", "", "the essence of it on the terminal"},
        {"--pytorch", "", "a memory snapshot for PyTorch's memory viewer"},
        {"--last", "number", "of the snapshot: so many events of each device, the last ones"},
        {"--perfetto", "", "a trace for Perfetto"},
        {"--pprof", "", "a profile for pprof"},
        {"--speedscope", "", "a profile for speedscope"},
        {"--folded", "", "a line for each call stack, with the bytes that it held at the peak"},
        {"--csv", "", "the events in the columns of RMM's log"},
        {"--brief", "number",
         "an allocation is called brief if it ends before so many others follow; 10 without it"},
        kDebugPath},
       report},
      {"replay",
       "trace...",
       "say what a program would have needed with other settings",
       "Plays the allocations, frees and waits of a trace against the pool, in their order, without a GPU; "
       "beside "
       "it what PyTorch's cache, bins of exact sizes and the driver alone would have needed. A trace is one "
       "of "
       "CUPOOL_TRACE, a snapshot of PyTorch's, a log of RMM's, or lines of text.",
       {{"--set", "name=value",
         "a row with this option; several in one row are separated by commas, and the flag may be repeated"},
        {"--memory", "size", "bytes of each device; those of the recorded one without it"},
        {"--lag", "launches", "how far the device is behind, if not until the program waits"},
        {"--one-thread", "", "every step in one thread"},
        {"--gpu", "", "play on the device here, under the library and by the driver alone"},
        {"--play", "", "play on the device here, in this process; what --gpu starts"},
        {"--json", "", "one JSON list on stdout"}},
       replay},
      {"tune",
       "trace...",
       "find the settings that serve a program best",
       "Replays the trace with one option changed after the other, keeps what gains, and prints the lines to "
       "set "
       "and what each saves. Of several traces the sum counts.",
       {{"--goal", "what",
         "memory (the default): as little as possible without many more calls of the driver; speed: as few "
         "calls and waits as possible in hardly more memory"},
        {"--memory", "size", "bytes of each device; those of the recorded one without it"},
        {"--lag", "launches", "how far the device is behind, if not until the program waits"},
        {"--one-thread", "", "every step in one thread"},
        {"--json", "", "one JSON object on stdout"}},
       tune},
      {"fit",
       "trace...",
       "say whether a program fits a device",
       "Replays the trace on a device of that size, with what others had taken there when it was recorded, "
       "and "
       "says how much is left or missing, which settings help, and who holds the memory. The exit code is 1 "
       "if "
       "it does not fit.",
       {{"--memory", "size", "of the device, such as 24G"},
        {"--lag", "launches", "how far the device is behind, if not until the program waits"},
        {"--one-thread", "", "every step in one thread"},
        {"--json", "", "one JSON list on stdout"}},
       fit},
      {"options",
       "[name]...",
       "list the options, or explain some",
       "Without a name it lists the common options. Of those that are named it says the value that a program "
       "started here would have, where that comes from, and what may be written. A name may be written with "
       "or without CUPOOL_, in any case.",
       {{"--all", "", "every option, those for experts last"},
        {"--json", "", "every option as JSON"},
        {"--markdown", "", "every option as the page docs/options.md"}},
       options},
      {"help", "[verb]", "explain the command, or one verb", "", {}, help},
      {"version", "", "print the version and the commit", "", {}, version},
  };
  return all;
}

}  // namespace

const Verb* find_verb(std::string_view name) {
  if (name == "-h" || name == "--help") name = "help";
  if (name == "-V" || name == "--version") name = "version";
  for (const Verb& verb : verbs()) {
    if (name == verb.name) return &verb;
  }
  return nullptr;
}

void print_help(const Verb& verb) {
  print_wrapped(std::string("usage: cupool ") + verb.name + (verb.flags.empty() ? "" : " [options]") +
                    (*verb.operands != '\0' ? std::string(" ") + verb.operands : ""),
                0);
  print_wrapped(*verb.doc != '\0' ? verb.doc : std::string(verb.summary) + ".", 2);
  for (const Flag& flag : verb.flags) {
    print_wrapped(words_of(flag), 2);
    print_wrapped(flag.doc, 2 + kIndent);
  }
}

int refuse_flag(const Verb& verb, std::string_view flag) {
  const std::string meant = meant_by(verb, flag);
  const std::string hint = meant.empty() ? "cupool " + std::string(verb.name) + " -h lists what it takes"
                                         : "did you mean " + meant + "?";
  say(stderr, "cupool: {} does not know {}; {}\n", verb.name, flag, hint);
  return kMisuse;
}

int refuse_verb(std::string_view word) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  const std::string text(word);
  const std::string near = nearest(word, names);
  if (!near.empty()) {
    say(stderr, "cupool: there is no command {}; did you mean cupool {}?\n", text, near);
  } else if (find_program(text.c_str()).found) {
    say(stderr, "cupool: there is no command {}; to run that program: cupool run -- {}\n", text, text);
  } else {
    say(stderr, "cupool: there is no command {}; cupool help lists them\n", text);
  }
  return kMisuse;
}

int cannot_write(int error) {
  say(stderr, "cupool: cannot write the answer: {}\n", strerror(error));
  return 1;
}

}  // namespace cupool::tools
