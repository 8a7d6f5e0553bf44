// `cupool run`: puts libcupool.so in front of LD_PRELOAD, sets the options that were given, and becomes the
// program.
#include <cstdio>
#include <cstring>
#include <string>

#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/launch.hpp"
#include "tools/verbs.hpp"

namespace cupool::tools {
namespace {

// "--name=value" or "--name value": the value, and how many arguments were used up; null when this is another
// option, and empty when nothing follows.
const char* value_of(const char* name, int count, char** arguments, int* used) {
  const size_t size = strlen(name);
  if (strncmp(arguments[0], name, size) != 0) return nullptr;
  if (arguments[0][size] == '=') {
    *used = 1;
    return arguments[0] + size + 1;
  }
  if (arguments[0][size] != '\0') return nullptr;
  *used = count < 2 ? 1 : 2;
  return count < 2 ? "" : arguments[1];
}

// Takes one option of the command off the line; 0: it is none that we know.
int take_option(int count, char** arguments, bool* fine) {
  int used = 0;
  if (strcmp(arguments[0], "--json") == 0) {
    *fine = set_option("stats=json");
    return 1;
  }
  if (const char* const form = value_of("--stats", count, arguments, &used)) {
    *fine = set_option((std::string("stats=") + form).c_str());
  } else if (const char* const assignment = value_of("--set", count, arguments, &used)) {
    *fine = set_option(assignment);
  }
  return used;
}

}  // namespace

int run(int count, char** arguments) {
  while (count > 0 && arguments[0][0] == '-') {
    if (strcmp(arguments[0], "--") == 0) {
      --count;
      ++arguments;
      break;
    }
    bool fine = true;
    const int used = take_option(count, arguments, &fine);
    if (used == 0) return refuse_flag("run", arguments[0]);
    if (!fine) return kMisuse;
    count -= used;
    arguments += used;
  }
  if (count == 0) {
    say(stderr, "cupool: run needs a program: cupool run [options] -- app [argument]...\n");
    return kMisuse;
  }
  return preload_library() ? become(arguments) : kNotFound;
}

}  // namespace cupool::tools
