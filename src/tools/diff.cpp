// `cupool diff`: what grew between two moments of a trace, or from one trace to another, by call stack and
// kind. Stacks of two processes are the same if their lines are.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/holders.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

struct Sum {
  double bytes = 0;
  double blocks = 0;
};
using Key = std::pair<std::vector<std::string>, std::string>;

void add(Holders& holders, double sign, std::map<Key, Sum>* all) {
  for (const Holder& holder : holders.all()) {
    Sum& sum = (*all)[{holders.lines(holder), holders.kind(holder)}];
    sum.bytes += sign * holder.bytes;
    sum.blocks += sign * holder.blocks;
  }
}

std::string signed_bytes(double bytes) {
  const auto size = static_cast<uint64_t>(std::llround(std::fabs(bytes)));
  return (bytes < 0 ? "-" : "+") + std::string(print_bytes(size).text);
}
std::string signed_blocks(double count) {
  const auto rounded = std::llround(count);
  return (rounded < 0 ? "" : "+") + std::to_string(rounded) + (std::abs(rounded) == 1 ? " block" : " blocks");
}
double size_of(const Sum& sum) { return std::fabs(sum.bytes); }

bool read_moment(const Arguments& arguments, const char* flag, Moment* out) {
  const std::string text = arguments.value(flag);
  if (text.empty() || Moment::parse(text, out)) return true;
  say(stderr,
      "cupool: {} is no moment; {} takes begin, peak, end or a time since the trace began: 12.5, 700ms\n",
      printable(text), flag);
  return false;
}

}  // namespace

int diff(const Arguments& arguments) {
  const size_t count = arguments.operands.size();
  if (count != 1 && count != 2) {
    say(stderr, "cupool: diff needs one trace or two\n");
    return kMisuse;
  }
  Moment from;
  Moment to;
  if (count == 1) from.which = Moment::Which::kBegin;
  size_t most = 0;
  if (!read_moment(arguments, "--from", &from) || !read_moment(arguments, "--to", &to) ||
      !read_most(arguments, &most))
    return kMisuse;
  CodeNames names(arguments.values("--debug-path"));
  Holders before(names);
  Holders after(names);
  if (!before.read(arguments.operands.front(), from) || !after.read(arguments.operands.back(), to)) return 1;

  const double grown = static_cast<double>(after.device_bytes()) - static_cast<double>(before.device_bytes());
  const auto say_when = [&](const Moment& moment, const std::string& path) {
    if (count == 2) say("{}, ", printable(path));
    say("{}: ", moment.print());
  };
  say_when(from, arguments.operands.front());
  say("{} of device memory\n", print_bytes(before.device_bytes()));
  say_when(to, arguments.operands.back());
  say("{}, {}\n", print_bytes(after.device_bytes()), signed_bytes(grown));
  std::map<std::string, Sum> kinds;
  for (Holders* const one : {&before, &after}) {
    one->live().for_each([&](const TraceLive::Block& block) {
      Holder holder;
      holder.kind = block.kind;
      Sum& sum = kinds[one->kind(holder)];
      sum.bytes += (one == &after ? 1.0 : -1.0) * static_cast<double>(block.given());
      sum.blocks += one == &after ? 1 : -1;
    });
  }
  for (const auto& [kind, sum] : kinds) {
    if (sum.bytes != 0 || sum.blocks != 0)
      say("  {}: {}, {}\n", kind, signed_bytes(sum.bytes), signed_blocks(sum.blocks));
  }
  std::map<Key, Sum> all;
  add(before, -1, &all);
  add(after, 1, &all);
  std::vector<const std::pair<const Key, Sum>*> sorted;
  for (const auto& one : all) {
    if (size_of(one.second) >= 1) sorted.push_back(&one);
  }
  // What grew comes first, then what shrank.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto* a, const auto* b) { return a->second.bytes > b->second.bytes; });
  const auto shrinks =
      std::find_if(sorted.begin(), sorted.end(), [](const auto* a) { return a->second.bytes < 0; });
  const auto grew = static_cast<size_t>(shrinks - sorted.begin());
  const size_t shown_of_grown = std::min(grew, most);
  const size_t shrunk = sorted.size() - grew;
  const size_t shown_of_shrunk = std::min(shrunk, most - shown_of_grown);
  const auto print = [&](const auto* one) {
    say("  {}, {}, {}\n", signed_bytes(one->second.bytes), signed_blocks(one->second.blocks),
        one->first.second);
    for (const std::string& line : one->first.first) say("      {}\n", line);
  };
  if (sorted.empty()) say("Nothing grew and nothing shrank.\n");
  if (grew != 0)
    say("What grew{}:\n", before.is_sampled() || after.is_sampled() ? ", as estimated from samples" : "");
  std::for_each(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(shown_of_grown), print);
  if (shown_of_shrunk != 0) say("What shrank:\n");
  std::for_each(sorted.rbegin(), sorted.rbegin() + static_cast<std::ptrdiff_t>(shown_of_shrunk), print);
  if (sorted.size() > shown_of_grown + shown_of_shrunk)
    say("{} more: --top {} shows them all\n", sorted.size() - shown_of_grown - shown_of_shrunk,
        sorted.size());
  if (!sorted.empty() && !before.has_stacks() && !after.has_stacks())
    say("There are no call stacks: CUPOOL_STACKS=16 records who asked.\n");
  fflush(stdout);
  print_missing(names);
  int code = 0;
  for (const auto& [holders, path] :
       {std::pair(&before, &arguments.operands.front()), std::pair(&after, &arguments.operands.back())}) {
    if (holders->is_whole() || code != 0) continue;
    say(stderr, "cupool: cannot read all of {}: {}\n", printable(*path), holders->reader().error());
    code = 1;
  }
  return code;
}

}  // namespace cupool::tools
