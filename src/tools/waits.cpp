// `cupool waits`: for what the host waited, by cause and by call stack, the longest first.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/say.hpp"
#include "tools/code_names.hpp"
#include "tools/commands.hpp"
#include "tools/holders.hpp"
#include "tools/stack_text.hpp"
#include "tools/table.hpp"
#include "tools/trace_file.hpp"
#include "tools/trace_reader.hpp"

namespace cupool::tools {
namespace {

struct Sum {
  uint64_t ns = 0;
  uint64_t calls = 0;
  uint64_t longest = 0;
  uint64_t longest_at = 0;  // since the trace began
  void add(uint64_t time, uint64_t at) {
    ns += std::min(time, ~uint64_t{0} - ns);
    ++calls;
    if (time >= longest) longest_at = at;
    longest = std::max(longest, time);
  }
  void add(const Sum& other) {
    ns += std::min(other.ns, ~uint64_t{0} - ns);
    calls += other.calls;
    if (other.longest > longest) longest_at = other.longest_at;
    longest = std::max(longest, other.longest);
  }
};

std::string print_time(uint64_t ns) {
  if (ns < 1'000'000) return make_text("{} µs", ns / 1000);
  if (ns < 10'000'000'000) return make_text("{}.{} ms", ns / 1'000'000, ns / 100'000 % 10);
  return make_text("{}.{} s", ns / 1'000'000'000, ns / 100'000'000 % 10);
}
std::string print_sum(const Sum& sum) {
  if (sum.calls == 1) return make_text("{} in 1 call", print_time(sum.ns));
  return make_text("{} in {} calls, {} at most", print_time(sum.ns), sum.calls, print_time(sum.longest));
}

template <typename Map>
auto longest_first(const Map& all) {
  std::vector<const typename Map::value_type*> out;
  out.reserve(all.size());
  for (const auto& one : all) out.push_back(&one);
  std::stable_sort(out.begin(), out.end(),
                   [](const auto* a, const auto* b) { return a->second.ns > b->second.ns; });
  return out;
}

}  // namespace

int waits(const Arguments& arguments) {
  if (arguments.operands.size() != 1) {
    say(stderr, "cupool: waits needs a file that CUPOOL_TRACE left\n");
    return kMisuse;
  }
  size_t most = 0;
  if (!read_most(arguments, &most)) return kMisuse;
  const std::string& path = arguments.operands[0];
  const OpenFile file = open_trace(path);
  if (file == nullptr) return 1;
  TraceReader reader(file.get());
  if (!reader.begin()) {
    say(stderr, "cupool: cannot read {}: {}\n", printable(path), reader.error());
    return 1;
  }
  const TraceAbout& about = reader.about();
  const size_t waited = about.find_event("waited");
  const auto field = [&](const char* name) {
    return waited < about.events.size() ? about.events[waited].find(name) : -1;
  };
  const int ns = field("ns");
  const int call = field("call");
  const int cause = field("cause");
  const int stack = field("stack");
  // By cause, stack and call.
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Sum> all;
  std::map<uint64_t, Sum> causes;
  bool has_stacks = false;
  uint64_t last = 0;
  const bool is_whole = reader.read([&](const Happened& happened) {
    last = std::max(last, happened.time);
    if (happened.event != waited) return;
    const auto value = [&](int at) { return at < 0 ? 0 : happened.values[static_cast<size_t>(at)]; };
    const uint64_t took = value(ns);
    const uint64_t began = happened.time - std::min(happened.time, took);
    const uint64_t at = began - std::min(began, reader.began());
    has_stacks = has_stacks || value(stack) != 0;
    all[{value(cause), value(stack), value(call)}].add(took, at);
    causes[value(cause)].add(took, at);
  });
  CodeNames names(arguments.values("--debug-path"));
  StackText text(reader.stacks(), names);
  const auto print_cause = [&](uint64_t number) { return print_choice(about, "waited", "cause", number); };
  Sum total;
  for (const auto& [number, sum] : causes) total.add(sum);
  if (total.calls == 0) {
    say("The host waited in no call of the trace.\n");
  } else {
    say("The host waited {}, in {} of the trace (waits of several threads add up):\n", print_sum(total),
        print_moment(last - std::min(last, reader.began())));
  }
  for (const auto* one : longest_first(causes))
    say("  {}: {}\n", print_cause(one->first), print_sum(one->second));
  // Stacks of the same lines are one place. More are looked up than shown, so that few of those are missed.
  constexpr size_t kLookedUp = 4;
  std::map<std::pair<std::vector<std::string>, std::string>, Sum> places;
  size_t looked_up = 0;
  for (const auto* one : longest_first(all)) {
    if (++looked_up > kLookedUp * most) break;
    const auto& [why, number, which] = one->first;
    places[{text.lines(number), make_text("{}, {}", print_call(about, which), print_cause(why))}].add(
        one->second);
  }
  size_t shown = 0;
  for (const auto* one : longest_first(places)) {
    if (shown++ == most) break;
    if (shown == 1) say("\nWhere, the longest first:\n");
    say("  {}: {}; the longest began at {}\n", one->first.second, print_sum(one->second),
        print_moment(one->second.longest_at));
    for (const std::string& line : one->first.first) say("      {}\n", line);
  }
  if (const std::string missing = reader.missing_end(); !missing.empty()) say("({})\n", missing);
  if (total.calls != 0 && !has_stacks)
    say("There are no call stacks: CUPOOL_STACKS=16 records who waited.\n");
  fflush(stdout);
  print_missing(names);
  if (is_whole) return 0;
  say(stderr, "cupool: cannot read all of {}: {}\n", printable(path), reader.error());
  return 1;
}

}  // namespace cupool::tools
