// `cupool doctor`: what the machine offers, whether the settings make sense, and, for a program that it runs,
// which doors it used, which mode ran, what bypassed the pool, and what to change. The program's output is
// not redirected.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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
#include "tools/report.hpp"
#include "tools/scratch.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

std::vector<std::string> complaints;
void complain(const char* sentence) { complaints.emplace_back(sentence); }

std::vector<Report> read_reports(const Scratch& scratch) {
  std::vector<Report> out;
  for (const std::string& name : scratch.names()) {
    std::string error;
    if (auto report = Report::read((scratch.path() + "/" + name).c_str(), &error))
      out.push_back(std::move(*report));
  }
  return out;
}

// The program's exit code as a shell gives it; -1: it could not be started.
int run_program(const std::vector<std::string>& words, const Scratch& scratch, bool as_json) {
  if (!preload_library()) return -1;
  const pid_t child = fork();
  if (child == 0) {
    Scratch::become_child();
    // stdout is for the JSON alone.
    if (as_json) dup2(STDERR_FILENO, STDOUT_FILENO);
    setenv("CUPOOL_STATS", "json", 1);
    setenv("CUPOOL_STATS_FILE", (scratch.path() + "/%p.json").c_str(), 1);
    _exit(become(words));
  }
  const int status = child < 0 ? -1 : Scratch::wait_for(child);
  if (status < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

void print_report(const Report& report) {
  const auto count = [&](const char* name) { return report.count(name); };
  say("{}[{}]: came by {}; mode {}\n", report.text("program"), count("pid"), joined(doors(report)),
      report.text("mode"));
  say("  {} allocation{}, {} past the pool; stream-ordered {}, mapped {}, arrays {}, managed {}\n",
      count("allocations"), count("allocations") == 1 ? "" : "s", count("forwarded_allocations"),
      count("async_allocations"), count("mapped_allocations"), count("array_allocations"),
      count("managed_allocations"));
  print_list("  to change:", advise(report));
}

// The overall result in one sentence.
std::string verdict(const DriverView& driver, const std::string& library, const std::vector<Report>& reports,
                    bool ran_program) {
  if (library.empty()) return "cupool cannot work: libcupool.so is not beside this command.";
  if (!driver.error.empty() && !ran_program)
    return "cupool cannot work here until the driver does: " + driver.error + ".";
  if (!ran_program && !complaints.empty())
    return "cupool works here, without the settings that it did not understand.";
  if (!ran_program) return "cupool works here.";
  if (reports.empty()) return "cupool had no part in this program.";
  uint64_t allocations = 0;
  uint64_t pooled = 0;
  size_t advice = 0;
  for (const Report& report : reports) {
    allocations += report.count("allocations") + report.count("managed_allocations");
    pooled += report.count("allocations") - report.count("forwarded_allocations") +
              report.count("managed_allocations");
    advice += advise(report).size();
  }
  if (allocations == 0) return "there was nothing for cupool to serve.";
  if (pooled == 0) return "cupool served none of the program's allocations; see what to change above.";
  return std::string("cupool serves this program") +
         (advice == 0 ? "; nothing needs to change." : "; see what to change above.");
}

void print_json(const DriverView& driver, const std::string& library, const std::vector<Report>& reports,
                bool ran_program) {
  Answer devices = Answer::array();
  for (const DriverView::Device& device : driver.devices) {
    devices.push_back(
        {{"name", device.name}, {"bytes", device.bytes}, {"memory_pools", device.memory_pools}});
  }
  Answer processes = Answer::array();
  for (const Report& report : reports) {
    processes.push_back({{"program", report.text("program")},
                         {"pid", report.count("pid")},
                         {"mode", report.text("mode")},
                         {"mode_reason", report.text("mode_reason")},
                         {"doors", doors(report)},
                         {"advice", advise(report)}});
  }
  print(Answer{{"cupool", kVersion},
               {"library", library},
               {"driver",
                {{"library", driver.library},
                 {"version", driver.version},
                 {"context_events", driver.context_events},
                 {"error", driver.error},
                 {"devices", devices}}},
               {"settings", complaints},
               {"advice", advise(driver)},
               {"processes", processes},
               {"verdict", verdict(driver, library, reports, ran_program)}});
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
  config::read_environment(config::environment(), complain);
  const DriverView driver = view_driver();
  const std::string library = find_library();
  std::vector<Report> reports;
  int code = driver.error.empty() && !library.empty() && complaints.empty() ? 0 : 1;
  if (ran_program) {
    const Scratch scratch;
    code = scratch.made() ? run_program(words, scratch, as_json) : -1;
    if (code < 0) return 1;
    reports = read_reports(scratch);
  }
  if (as_json) {
    print_json(driver, library, reports, ran_program);
    return code;
  }
  print_machine(driver, library);
  print_list("settings:", complaints);
  print_list("to change:", advise(driver));
  for (const Report& report : reports) print_report(report);
  if (ran_program && reports.empty()) {
    print_list("to change:",
               {"No process reported: the program made no CUDA call, is linked statically without a dynamic "
                "loader, or runs with other rights (setuid), where LD_PRELOAD is ignored."});
  }
  print_wrapped("verdict: " + verdict(driver, library, reports, ran_program), 0);
  return code;
}

}  // namespace cupool::tools
