// `cupool run`: puts libcupool.so in front of LD_PRELOAD, sets the options that were given, and executes the
// program.
#include <cstdio>
#include <string>

#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/launch.hpp"

namespace cupool::tools {

int run(const Arguments& arguments) {
  for (const auto& [flag, value] : arguments.flags) {
    const std::string assignment =
        flag == "--json" ? "stats=json" : (flag == "--stats" ? "stats=" + value : value);
    if (!set_option(assignment.c_str())) return kMisuse;
  }
  if (arguments.operands.empty()) {
    say(stderr, "cupool: run needs a program: cupool run [options] -- app [argument]...\n");
    return kMisuse;
  }
  return preload_library() ? become(arguments.operands) : kNotFound;
}

}  // namespace cupool::tools
