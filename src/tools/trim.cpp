// `cupool trim`: asks processes in the registry to give their idle memory back to the driver now, and says
// what each gave.
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/registries.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

constexpr int kAnswerMs = 1000;

// -1: all.
bool parse_target(const std::string& word, int64_t* pid) {
  *pid = -1;
  if (word == "all") return true;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *pid);
  return error == std::errc() && end == word.data() + word.size() && *pid > 0;
}

// The entry of the same process and device, or null: it is gone.
const neighbours::Entry* find(const std::vector<Neighbour>& all, const neighbours::Entry& wanted) {
  for (const auto& [entry, user] : all) {
    if (entry.process == wanted.process && entry.figures.device == wanted.figures.device &&
        entry.figures.ordinal == wanted.figures.ordinal) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace

int trim(const Arguments& arguments) {
  int64_t pid = -1;
  if (arguments.operands.size() != 1 || !parse_target(arguments.operands[0], &pid)) {
    say(stderr, "cupool: trim needs the number of a process, or all; cupool top lists the processes\n");
    return kMisuse;
  }
  Registries registries;
  if (!registries.any()) {
    registries.explain_none();
    return 1;
  }
  registries.warn_left_out();
  // The figures that the processes published last may be stale.
  registries.ask({{}, true, pid, 0, 0}, kAnswerMs / 10);
  std::vector<Neighbour> before;
  for (Neighbour& one : registries.read()) {
    if (pid == -1 || (one.entry.same_namespace && one.entry.pid == pid)) before.push_back(std::move(one));
  }
  if (before.empty()) {
    if (pid == -1) return 0;
    say(stderr, "cupool: process {} is not in the registry; cupool top lists those that are\n", pid);
    return 1;
  }
  const uint64_t asked = registries.ask({{}, true, pid, neighbours::kEverythingIdle, 0}, kAnswerMs);
  const auto after = registries.read();
  int code = 0;
  for (const auto& [was, user] : before) {
    say("{}[{}], device {}: ", printable(was.program), was.pid, was.figures.ordinal);
    const neighbours::Entry* const now = find(after, was);
    if (now == nullptr) {
      say("it has ended\n");
    } else if (now->stamp <= asked) {
      say("no answer within a second\n");
      code = 1;
    } else {
      const uint64_t had = was.figures.reserved;
      const uint64_t has = now->figures.reserved;
      say("{} given back, {} still idle\n", print_bytes(had > has ? had - has : 0),
          print_bytes(now->figures.cached));
    }
  }
  return code;
}

}  // namespace cupool::tools
