// The `cupool` command: finds the verb and hands the rest of the line to it. Errors go to stderr with exit
// code 2, as other tools do.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/version.hpp"
#include "tools/commands.hpp"

namespace {

constexpr char kUsage[] =
    "usage: cupool run [--stats=form] [--set name=value]... [--] app [argument]...   run a program with the "
    "pool\n"
    "       cupool doctor [--json] [-- app [argument]...]   what the machine, the settings and a program "
    "need\n"
    "       cupool merge [--json] report.json...            many processes' reports as one table\n"
    "       cupool options [--json | --markdown]            list every option\n"
    "       cupool --version\n"
    "       cupool --help\n";

int misuse(const char* what, const char* argument) {
  fprintf(stderr, "cupool: %s%s\n%s", what, argument, kUsage);
  return cupool::tools::kMisuse;
}

int act(int count, char** arguments) {
  if (count < 2) return misuse("say what to do", "");
  const std::string_view verb(arguments[1]);
  if (verb == "--version") return printf("cupool %s\n", cupool::kVersion) < 0;
  if (verb == "--help" || verb == "help") return printf("%s", kUsage) < 0;
  if (verb == "run") return cupool::tools::run(count - 2, arguments + 2);
  if (verb == "options") return cupool::tools::options(count - 2, arguments + 2);
  if (verb == "doctor") return cupool::tools::doctor(count - 2, arguments + 2);
  if (verb == "merge") return cupool::tools::merge(count - 2, arguments + 2);
  return misuse("there is no command ", arguments[1]);
}

}  // namespace

int main(int count, char** arguments) {
  const int code = act(count, arguments);
  // What was printed may not have arrived.
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  fprintf(stderr, "cupool: cannot write the answer: %s\n", strerror(errno));
  return code == 0 ? 1 : code;
}
