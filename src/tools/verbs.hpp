// The verbs of the command with their flags, in one table: the dispatch, the help of each verb, the hints for
// near misses and what CLI11 is told to accept all come from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/arguments.hpp"

namespace cupool::tools {

struct Flag {
  const char* name;   // "--set"
  const char* value;  // "name=value"; empty: it takes none
  const char* doc;
};

struct Verb {
  const char* name;
  const char* operands;  // "[--] app [argument]..."
  const char* summary;   // one line
  const char* doc;       // a paragraph
  std::vector<Flag> flags;
  int (*act)(const Arguments& arguments);
  bool runs_program = false;  // its first operand begins the command line of another program
};

// The verb of that name, or of the equivalent flag: -h, --help, -V, --version.
const Verb* find_verb(std::string_view name);

// Prints a verb's help to stdout.
void print_help(const Verb& verb);

// "cupool: run does not know --limit; did you mean --set limit=value?" to stderr, and the exit code for it.
int refuse_flag(const Verb& verb, std::string_view flag);
int refuse_verb(std::string_view word);

}  // namespace cupool::tools
