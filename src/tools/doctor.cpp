// `cupool doctor`: what the machine offers, whether the settings make sense, and, for a program that it runs,
// which doors it used, which mode ran, what bypassed the pool, and what to change, however its processes end.
// Text and JSON are two forms of one diagnosis. The program's output is not redirected.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "base/version.hpp"
#include "config/options.hpp"
#include "config/parse.hpp"
#include "config/process.hpp"
#include "tools/advice.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/launch.hpp"
#include "tools/processes.hpp"
#include "tools/scratch.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

std::vector<std::string> complaints;
void complain(const char* sentence) { complaints.emplace_back(sentence); }

// All that is said, in either form.
struct Diagnosis {
  DriverView driver;
  std::string library;
  std::vector<std::string> advice;  // about the machine, and about a program of which nothing is known
  bool ran_program = false;
  Outcome outcome;
};

pid_t start_program(const std::vector<std::string>& words, const Scratch& scratch, bool as_json) {
  if (!preload_library()) return -1;
  adopt_orphans();
  const pid_t child = fork();
  if (child == 0) {
    Scratch::become_child();
    // stdout is for the JSON alone.
    if (as_json) dup2(STDERR_FILENO, STDOUT_FILENO);
    keep_counts(scratch);
    _exit(become(words));
  }
  return child;
}

std::vector<std::string> doors(const Report& report) {
  std::vector<std::string> out;
  if (report.count("hooked_by_dlsym") > 0) out.emplace_back("dlsym");
  if (report.count("hooked_by_proc_address") > 0) out.emplace_back("cuGetProcAddress");
  if (out.empty()) out.emplace_back("linked symbols");
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

void print_list(const char* title, const std::vector<std::string>& sentences) {
  if (sentences.empty()) return;
  say("{}\n", title);
  for (const std::string& sentence : sentences) print_wrapped("- " + printable(sentence), 2);
}

void print_machine(const DriverView& driver, const std::string& library) {
  say("cupool {}, library {}\n", kVersion, library.empty() ? "not found" : library.c_str());
  if (!driver.error.empty()) {
    say("driver: {}\n", driver.error);
    return;
  }
  say("driver {}.{}, {}, context events: {}\n", driver.version / 1000, driver.version % 1000 / 10,
      driver.library, driver.context_events ? "yes" : "no");
  for (size_t i = 0; i < driver.devices.size(); ++i) {
    const DriverView::Device& device = driver.devices[i];
    say("device {}: {}, {}, stream-ordered pools: {}\n", i, device.name, print_bytes(device.bytes),
        device.memory_pools ? "yes" : "no");
  }
}

constexpr const char* kShown[] = {"allocations",         "forwarded_allocations", "failed_allocations",
                                  "async_allocations",   "mapped_allocations",    "array_allocations",
                                  "managed_allocations", "forwarded_managed",     "failed_frees",
                                  "spilled_allocations", "spilled_bytes"};

void print_process(const Process& process) {
  const Report& report = process.report;
  const auto count = [&](const char* name) { return report.count(name); };
  const std::string reason = report.text("mode_reason");
  const std::string end = process.end.words();
  print_wrapped(make_text("{}[{}]: came by {}; mode {}{}{}{}", printable(report.text("program")), process.pid,
                          joined(doors(report)), printable(report.text("mode")),
                          reason.empty() ? "" : " (" + printable(reason) + ")", end.empty() ? "" : "; ", end),
                0);
  print_wrapped(
      make_text("{}{} allocation{}, {} past the pool, {} failed; stream-ordered {}, mapped {}, arrays {}, "
                "managed {}",
                process.is_whole ? "" : "at least ", count("allocations"),
                count("allocations") == 1 ? "" : "s", count("forwarded_allocations"),
                count("failed_allocations"), count("async_allocations"), count("mapped_allocations"),
                count("array_allocations"), count("managed_allocations")),
      2);
  if (count("forwarded_managed") > 0)
    say("  {} of the managed ones past the pool\n", count("forwarded_managed"));
  if (count("failed_frees") > 0)
    say("  {} free{} failed\n", count("failed_frees"), count("failed_frees") == 1 ? "" : "s");
  if (count("spilled_allocations") > 0) {
    say("  {} spilled to host memory, {}\n", count("spilled_allocations"),
        print_bytes(count("spilled_bytes")));
  }
  print_list("  to change:", process.advice);
}

// What the pool had to do with the program.
enum class Service { kUnseen, kAllFailed, kNothing, kNone, kServes };

Service service_of(const std::vector<Process>& processes) {
  uint64_t allocations = 0;
  uint64_t pooled = 0;
  uint64_t failed = 0;
  for (const Process& process : processes) {
    const Report& report = process.report;
    allocations += report.count("allocations") + report.count("managed_allocations");
    pooled += pooled_allocations(report) + pooled_managed(report);
    failed += report.count("failed_allocations");
  }
  if (processes.empty()) return Service::kUnseen;
  if (allocations == 0) return failed > 0 ? Service::kAllFailed : Service::kNothing;
  return pooled == 0 ? Service::kNone : Service::kServes;
}

const char* words_of(Service service, bool is_over) {
  switch (service) {
    case Service::kUnseen:
      return "cupool had no part in this program that can be seen";
    case Service::kAllFailed:
      return "every allocation that cupool was asked for failed";
    case Service::kNothing:
      return "there was nothing for cupool to serve";
    case Service::kNone:
      return "cupool served none of the program's allocations";
    case Service::kServes:
      return is_over ? "cupool served this program" : "cupool serves this program";
  }
  return "";
}

// Those of the program's processes that failed, the first few by their numbers.
std::string failed_processes(const std::vector<Process>& processes) {
  constexpr size_t kMostShown = 3;
  size_t found = 0;
  bool is_certain = true;
  std::string shown;
  for (const Process& process : processes) {
    if (!process.end.is_doubtful()) continue;
    is_certain = is_certain && process.end.is_failure();
    if (++found <= kMostShown)
      shown += make_text("{}{} {}", shown.empty() ? "" : "; ", process.pid, process.end.words());
  }
  if (found == 0) return "";
  if (found == 1) return ", whose process " + shown;
  if (found > kMostShown) shown += make_text("; and {} more", found - kMostShown);
  return make_text(", of whose processes {} failed{}: {}", found, is_certain ? "" : ", or may have", shown);
}

// The program's own failure, or that of its processes.
std::string failure(const Outcome& outcome) {
  if (outcome.program.how == End::How::kKilled) return " until it " + outcome.program.words();
  if (outcome.program.is_failure()) return ", which " + outcome.program.words();
  return failed_processes(outcome.processes);
}

// The overall result in one sentence.
std::string verdict(const Diagnosis& all) {
  if (all.library.empty()) return "cupool cannot work: libcupool.so is not beside this command.";
  if (!all.driver.error.empty() && !all.ran_program)
    return "cupool cannot work here until the driver does: " + all.driver.error + ".";
  if (!all.ran_program && !complaints.empty())
    return "cupool works here, without the settings that it did not understand.";
  if (!all.ran_program)
    return all.advice.empty() ? "cupool works here." : "cupool works here; see what to change above.";
  const Outcome& outcome = all.outcome;
  const Service service = service_of(outcome.processes);
  const std::string failed = failure(outcome);
  std::string said = words_of(service, !failed.empty());
  if (service == Service::kServes) {
    said += failed;
  } else if (outcome.program.is_failure()) {
    said += "; the program " + outcome.program.words();
  }
  if (outcome.has_running) said += "; processes of it still run, so that this holds so far";
  if (service == Service::kUnseen || service == Service::kNothing) return said + ".";
  size_t advice = all.advice.size() + complaints.size();
  for (const Process& process : outcome.processes) advice += process.advice.size();
  if (advice > 0) return said + "; see what to change above.";
  const bool is_well = service == Service::kServes && failed.empty() && !outcome.has_running;
  return said + (is_well ? "; nothing needs to change." : ".");
}

Answer answer_of(const End& end) {
  const auto number = [&](End::How how) { return end.how == how ? Answer(end.number) : Answer(nullptr); };
  return {{"runs", end.how == End::How::kRuns},
          {"exit_code", number(End::How::kExited)},
          {"signal", number(End::How::kKilled)},
          {"words", end.words()}};
}

Answer answer_of(const Process& process) {
  const Report& report = process.report;
  Answer out = {
      {"program", report.text("program")},         {"pid", process.pid},     {"mode", report.text("mode")},
      {"mode_reason", report.text("mode_reason")}, {"doors", doors(report)}, {"end", answer_of(process.end)},
      {"all_counts_are_known", process.is_whole}};
  for (const char* const name : kShown) out[name] = report.count(name);
  out["advice"] = process.advice;
  return out;
}

void print_json(const Diagnosis& all) {
  const DriverView& driver = all.driver;
  Answer devices = Answer::array();
  for (const DriverView::Device& device : driver.devices) {
    devices.push_back(
        {{"name", device.name}, {"bytes", device.bytes}, {"memory_pools", device.memory_pools}});
  }
  Answer processes = Answer::array();
  for (const Process& process : all.outcome.processes) processes.push_back(answer_of(process));
  Answer answer = {{"cupool", kVersion},
                   {"library", all.library},
                   {"driver",
                    {{"library", driver.library},
                     {"version", driver.version},
                     {"context_events", driver.context_events},
                     {"error", driver.error},
                     {"devices", devices}}},
                   {"settings", complaints},
                   {"advice", all.advice},
                   {"processes", processes}};
  if (all.ran_program) {
    answer["end"] = answer_of(all.outcome.program);
    answer["still_runs"] = all.outcome.has_running;
  }
  answer["verdict"] = verdict(all);
  print(answer);
}

void print_text(const Diagnosis& all) {
  print_machine(all.driver, all.library);
  print_list("settings:", complaints);
  print_list("to change:", all.advice);
  for (const Process& process : all.outcome.processes) print_process(process);
  if (all.ran_program) say("the program {}\n", all.outcome.program.words());
  if (all.outcome.has_running) say("processes of the program still run\n");
  print_wrapped("verdict: " + verdict(all), 0);
}

// What to change in each process. One that has no memory, such as a launcher, is no reason to change anything
// where others are served.
void advise_all(std::vector<Process>* processes, const config::Options& options) {
  const bool is_served = service_of(*processes) == Service::kServes;
  for (Process& process : *processes) {
    const auto count = [&](const char* name) { return process.report.count(name); };
    const bool has_none = count("allocations") + count("failed_allocations") + count("managed_allocations") +
                              count("async_allocations") + count("mapped_allocations") +
                              count("array_allocations") ==
                          0;
    if (!is_served || !has_none) process.advice = advise(process.report, options);
  }
}

int diagnose(const std::vector<std::string>& words, bool as_json, const config::Options& options,
             const Scratch* scratch) {
  Diagnosis all;
  all.driver = view_driver();
  all.library = find_library();
  all.advice = advise(all.driver);
  all.ran_program = scratch != nullptr;
  int code = all.driver.error.empty() && !all.library.empty() && complaints.empty() ? 0 : 1;
  if (all.ran_program) {
    if (!scratch->made()) return 1;
    all.outcome = wait_for_all(start_program(words, *scratch, as_json), *scratch);
    if (all.outcome.program.how == End::How::kUnknown) return 1;
    code = all.outcome.program.code();
    advise_all(&all.outcome.processes, options);
    if (all.outcome.processes.empty() && all.outcome.faults.empty()) {
      all.advice.push_back(
          "No process reported: the program made no CUDA call that cupool hooks, is linked statically "
          "without a dynamic "
          "loader, runs with other rights (setuid), where LD_PRELOAD is ignored, or in an environment "
          "without "
          "it, or cannot write to " +
          scratch->path() + ".");
    }
    all.advice.insert(all.advice.end(), all.outcome.faults.begin(), all.outcome.faults.end());
  }
  if (as_json) {
    print_json(all);
  } else {
    print_text(all);
  }
  return code;
}

}  // namespace

int doctor(const Arguments& arguments) {
  const bool as_json = arguments.has("--json");
  const std::vector<std::string>& words = arguments.operands;
  const bool ran_program = !words.empty();
  if (ran_program) {
    const Program program = find_program(words[0].c_str());
    if (!program.found) return cannot_run(words[0].c_str(), program.error);
  }
  const config::Options options = config::read_environment(config::environment(), complain);
  if (!ran_program) return diagnose(words, as_json, options, nullptr);
  const Scratch scratch;
  return diagnose(words, as_json, options, &scratch);
}

}  // namespace cupool::tools
