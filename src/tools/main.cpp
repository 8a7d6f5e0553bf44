// The `cupool` command: finds the verb and hands the rest of the line to it. Errors go to stderr with exit
// code 2, as other tools do.
#include <cerrno>
#include <cstdio>

#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/verbs.hpp"

namespace {

using namespace cupool::tools;
using cupool::say;

int act(int count, char** words) {
  if (count < 2) {
    say(stderr, "cupool: no command given; see `cupool help`\n");
    return kMisuse;
  }
  const Verb* const verb = find_verb(words[1]);
  if (verb == nullptr) return refuse_verb(words[1]);
  int code = 0;
  const auto arguments = parse(*verb, {words + 2, words + count}, &code);
  return arguments ? verb->act(*arguments) : code;
}

}  // namespace

int main(int count, char** words) {
  const int code = act(count, words);
  // Buffered output may fail to arrive.
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  const int failed = cannot_write(errno);
  return code == 0 ? failed : code;
}
