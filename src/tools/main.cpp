// The `cupool` command: finds the verb and hands the rest of the line to it. Errors go to stderr with exit
// code 2, as other tools do.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/say.hpp"
#include "base/version.hpp"
#include "tools/commands.hpp"
#include "tools/verbs.hpp"

namespace {

using namespace cupool::tools;
using cupool::say;

int print_version() {
  say("cupool {}\n", cupool::kVersion);
  return 0;
}

int help(int count, char** arguments) {
  if (count == 0) {
    print_help();
    return 0;
  }
  const Verb* const verb = find_verb(arguments[0]);
  if (verb == nullptr) return refuse_verb(arguments[0]);
  print_help(*verb);
  return 0;
}

int act(int count, char** arguments) {
  if (count < 2) {
    say(stderr, "cupool: say what to do; cupool help lists the commands\n");
    return kMisuse;
  }
  const std::string_view word(arguments[1]);
  if (word == "-h" || word == "--help") return help(0, nullptr);
  if (word == "-V" || word == "--version") return print_version();
  const Verb* const verb = find_verb(word);
  if (verb == nullptr) return refuse_verb(word);
  if (asks_for_help(*verb, count - 2, arguments + 2)) return help(1, arguments + 1);
  if (word == "help") return help(count - 2, arguments + 2);
  if (word == "version") return print_version();
  return verb->act(count - 2, arguments + 2);
}

}  // namespace

int main(int count, char** arguments) {
  const int code = act(count, arguments);
  // What was printed may not have arrived.
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  say(stderr, "cupool: cannot write the answer: {}\n", strerror(errno));
  return code == 0 ? 1 : code;
}
