// `cupool run`: puts libcupool.so in front of LD_PRELOAD, sets the options that were given, and executes the
// program. With --report it stays, and makes a page of each trace that the program's processes leave.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/launch.hpp"
#include "tools/processes.hpp"
#include "tools/scratch.hpp"

namespace cupool::tools {
namespace {

// What the program prints stays its own: the names of the pages go to stderr.
int run_with_report(const Arguments& arguments) {
  const Scratch scratch;
  if (!scratch.made()) {
    say(stderr, "cupool: cannot make a directory in /tmp for the trace: {}; nothing was started\n",
        strerror(errno));
    return kCannotRun;
  }
  if (!set_option(("trace=" + scratch.path() + "/%e-%p").c_str())) return kMisuse;
  // (As deep as most programs are; --set stacks=0 is without.)
  const auto sets_stacks = [](const auto& one) {
    return option_name(one.second.substr(0, one.second.find('='))) == "CUPOOL_STACKS";
  };
  if (std::none_of(arguments.flags.begin(), arguments.flags.end(), sets_stacks) && !set_option("stacks=16"))
    return kMisuse;
  const pid_t child = fork();
  if (child == 0) {
    Scratch::become_child();
    _exit(become(arguments.operands));
  }
  const int status = child < 0 ? -1 : Scratch::wait_for(child);
  if (status < 0) return cannot_run(arguments.operands[0].c_str(), errno);
  std::vector<std::string> traces = scratch.names();
  std::sort(traces.begin(), traces.end());
  for (const std::string& name : traces) {
    const std::string page = "cupool-" + name + ".html";
    if (write_report(scratch.path() + "/" + name, page) == 0)
      say(stderr, "cupool: the report is in {}\n", page);
  }
  if (traces.empty())
    say(stderr, "cupool: there is no report, because no process of {} used CUDA\n", arguments.operands[0]);
  return End::of_status(status).code();
}

}  // namespace

int run(const Arguments& arguments) {
  for (const auto& [flag, value] : arguments.flags) {
    if (flag == "--report") continue;
    const std::string assignment =
        flag == "--json" ? "stats=json" : (flag == "--stats" ? "stats=" + value : value);
    if (!set_option(assignment.c_str())) return kMisuse;
  }
  if (arguments.operands.empty()) {
    say(stderr, "cupool: run needs a program: cupool run [options] -- app [argument]...\n");
    return kMisuse;
  }
  if (!preload_library()) return kNotFound;
  return arguments.has("--report") ? run_with_report(arguments) : become(arguments.operands);
}

}  // namespace cupool::tools
