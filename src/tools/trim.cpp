// `cupool trim`: asks processes in the registry to give their idle memory back to the driver now, and says
// what each gave.
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
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

// One process and device. With its user: another one may have copied the number of the process.
auto key_of(const Neighbour& one) {
  const neighbours::Figures& figures = one.entry.figures;
  return std::tuple(std::string_view(one.user), one.entry.process, figures.ordinal,
                    std::string_view(reinterpret_cast<const char*>(&figures.device), sizeof figures.device));
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
    if (pid == -1) {
      say("No process uses device memory under cupool now: there is nothing to give back.\n");
      return 0;
    }
    say(stderr, "cupool: process {} is not in the registry; cupool top lists those that are\n", pid);
    return 1;
  }
  const uint64_t asked = registries.ask({{}, true, pid, neighbours::kEverythingIdle, 0}, kAnswerMs);
  const auto after = registries.read();
  // In order, because users can fill their registries.
  std::map<decltype(key_of(before[0])), const neighbours::Entry*> found;
  for (const Neighbour& one : after) found.emplace(key_of(one), &one.entry);
  int code = 0;
  for (const Neighbour& one : before) {
    const neighbours::Entry& was = one.entry;
    say("{}[{}], device {}: ", printable(was.program), was.pid, was.figures.ordinal);
    const auto place = found.find(key_of(one));
    const neighbours::Entry* const now = place == found.end() ? nullptr : place->second;
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
