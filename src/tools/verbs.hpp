// The verbs of the command with their flags, in one table: the dispatch, the help of each verb, the hints for
// near misses and the words of shell completion all come from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
  int (*act)(int count, char** arguments);  // null: the dispatch itself
  bool runs_program;                        // its first operand begins somebody else's command line
};

const std::vector<Verb>& verbs();
const Verb* find_verb(std::string_view name);

// To stdout: all verbs, or one of them.
void print_help();
void print_help(const Verb& verb);

// Whether the user asks what a verb does: -h or --help before any operand.
bool asks_for_help(const Verb& verb, int count, char** arguments);

// "cupool: run does not know --limit; did you mean --set limit=value?" to stderr, and the exit code for it.
int refuse_flag(std::string_view verb, std::string_view flag);
int refuse_verb(std::string_view word);

// The candidate that differs in the fewest letters, or empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace cupool::tools
