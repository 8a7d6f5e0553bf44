// `cupool trace`: what a trace holds, as a summary or line by line.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/attach.hpp"
#include "tools/code_names.hpp"
#include "tools/commands.hpp"
#include "tools/holders.hpp"
#include "tools/table.hpp"
#include "tools/trace_file.hpp"
#include "tools/trace_lines.hpp"
#include "tools/trace_reader.hpp"

namespace cupool::tools {
namespace {

// What a summary says besides what is live, gathered while the events go by.
class Summary {
 public:
  explicit Summary(const Holders& holders) : holders_(holders) {}

  void see(const Happened& happened) {
    if (counts_.empty()) begin();
    last_ = std::max(last_, happened.time);
    ++counts_[happened.event];
    // (This one is seen before the live memory changes by it, and it changes none.)
    if (happened.event == counters_) compare(happened);
    if (happened.event == lost_) missing_ += happened.values[0];
  }
  void print() const {
    const TraceAbout& about = holders_.about();
    const TraceReader& reader = holders_.reader();
    say("{}[{}] on {}{}{}, cupool {}\n", about.program, about.pid, about.host,
        about.rank.empty() ? "" : ", rank ", about.rank, about.library);
    const uint64_t ns = last_ - std::min(reader.began(), last_);
    say("{} events in {}, {} bytes each\n", reader.events(), print_moment(ns),
        reader.events() == 0 ? 0 : reader.event_bytes() / reader.events());
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0) say("  {} {}\n", counts_[i], about.events[i].name);
    }
    for (const auto& [place, sum] : holders_.live().sums()) {
      say("device {}, {}: {} in {} block{} at the end ({} asked for), {} at most\n", place.first,
          print_choice(about, "allocated", "kind", place.second), print_bytes(sum.given), sum.blocks,
          sum.blocks == 1 ? "" : "s", print_bytes(sum.asked), print_bytes(sum.most));
    }
    if (compared_ != 0) say("the counters agree at {} of {} moments\n", agreed_, compared_);
    if (missing_ != 0)
      say("{} missing: {} found no room\n",
          missing_ == 1 ? "1 event is" : make_text("{} events are", missing_), missing_ == 1 ? "it" : "they");
    if (const std::string missing = reader.missing_end(); !missing.empty()) say("{}\n", missing);
  }

 private:
  void begin() {
    counts_.resize(holders_.about().events.size());
    counters_ = holders_.about().find_event("counters");
    lost_ = holders_.about().find_event("lost");
  }
  void compare(const Happened& happened) {
    const TraceEvent& event = holders_.about().events[happened.event];
    const auto value = [&](const char* name) {
      const int field = event.find(name);
      return field < 0 ? 0 : happened.values[static_cast<size_t>(field)];
    };
    const TraceLive::Sum sum = holders_.live().counted(value("device"));
    ++compared_;
    if (sum.given == value("live") && sum.asked == value("asked")) ++agreed_;
  }

  const Holders& holders_;
  std::vector<uint64_t> counts_;
  size_t counters_ = 0;
  size_t lost_ = 0;
  uint64_t last_ = 0;
  uint64_t missing_ = 0;
  uint64_t compared_ = 0;
  uint64_t agreed_ = 0;
};

void print_at(Holders& holders, const Moment& moment, size_t most) {
  std::string when = moment.print();
  if (moment.which == Moment::Which::kPeak || moment.which == Moment::Which::kEnd)
    when += ", after " + print_moment(holders.time());
  say("\nWho held memory {}: {} of device memory in all{}\n", when, print_bytes(holders.device_bytes()),
      holders.is_sampled() ? "; by samples:" : "");
  for (const std::string& line : holder_lines(holders, most)) say("{}\n", line);
}

// Who holds it at a moment; without one, after the summary, at the peak and at the end.
int summarize(const Arguments& arguments, const std::string& path) {
  Moment moment;
  const std::string at = arguments.value("--at");
  if (!at.empty() && !Moment::parse(at, &moment)) {
    say(stderr,
        "cupool: {} is no moment; --at takes begin, peak, end or a time since the trace began: 12.5, 700ms\n",
        printable(at));
    return kMisuse;
  }
  size_t most = 0;
  if (!read_most(arguments, &most)) return kMisuse;
  CodeNames names(arguments.values("--debug-path"));
  Holders holders(names);
  if (!at.empty()) {
    if (!holders.read(path, moment)) return 1;
    print_at(holders, moment, most);
  } else {
    Summary summary(holders);
    if (!holders.read(path, moment, [&](const Happened& happened) { summary.see(happened); })) return 1;
    summary.print();
    const Moment peak{Moment::Which::kPeak, 0};
    // (At the end of most programs nothing is left, and what was left at the peak is the same.)
    if (holders.live().most_device_bytes() != holders.device_bytes()) {
      Holders before(names);
      if (before.read(path, peak)) print_at(before, peak, most);
    }
    if (!holders.all().empty()) print_at(holders, moment, most);
  }
  if (!holders.all().empty() && !holders.has_stacks())
    say("\nThere are no call stacks: CUPOOL_STACKS=16 records who asked.\n");
  fflush(stdout);
  print_missing(names);
  if (holders.is_whole()) return 0;
  say(stderr, "cupool: cannot read all of {}: {}\n", printable(path), holders.reader().error());
  return 1;
}

// Every event as a line.
int dump(const std::string& path) {
  const OpenFile file = open_trace(path);
  if (file == nullptr) return 1;
  TraceReader reader(file.get());
  if (!reader.begin()) {
    say(stderr, "cupool: cannot read {}: {}\n", printable(path), reader.error());
    return 1;
  }
  std::string line;
  const bool is_whole = reader.read([&](const Happened& happened) {
    line.clear();
    print_event(reader.about(), happened, reader.began(), &line);
    line += '\n';
    fwrite(line.data(), 1, line.size(), stdout);
  });
  if (is_whole) return 0;
  fflush(stdout);
  say(stderr, "cupool: cannot read all of {}: {}\n", printable(path), reader.error());
  return 1;
}

int compress(const std::string& path, std::string to) {
  if (to.empty()) to = path + ".zst";
  const std::string why = compress_trace(path, to);
  if (why.empty()) return 0;
  say(stderr, "cupool: cannot compress {} to {}: {}\n", printable(path), printable(to), why);
  return 1;
}

const char* type_of(const trace::FieldInfo& field) {
  switch (field.type) {
    case trace::FieldType::kNumber:
      return "number";
    case trace::FieldType::kBytes:
      return "bytes";
    case trace::FieldType::kTime:
      return "time";
    case trace::FieldType::kAddress:
      return "address";
    case trace::FieldType::kStream:
      return "stream";
    case trace::FieldType::kContext:
      return "context";
    case trace::FieldType::kCall:
      return "call";
    case trace::FieldType::kText:
      return "text";
    case trace::FieldType::kChoice:
      return trace::kChoiceTable[field.choice].name;
  }
  return "";
}

// The part of docs/trace-format.md that follows from the table.
void print_markdown() {
  say("| event | fields |\n|---|---|\n");
  for (const trace::EventInfo& event : trace::kEventTable) {
    std::string fields;
    for (size_t i = 0; i < event.count; ++i) {
      const trace::FieldInfo& field = event.fields[i];
      fields += make_text("{}`{}` ({}){}{}", i == 0 ? "" : "; ", field.name, type_of(field),
                          *field.doc == '\0' ? "" : " ", field.doc);
    }
    say("| `{}`: {} | {} |\n", event.name, event.doc, fields);
  }
  say("\n| choice | words, from 0 |\n|---|---|\n");
  for (const trace::ChoiceInfo& choice : trace::kChoiceTable) {
    std::string words;
    for (size_t i = 0; i < choice.count; ++i) words += make_text("{}{}", i == 0 ? "" : ", ", choice.words[i]);
    say("| {} | {} |\n", choice.name, words);
  }
}

}  // namespace

int trace(const Arguments& arguments) {
  if (arguments.has("--markdown")) {
    print_markdown();
    return 0;
  }
  if (arguments.operands.size() != 1) {
    say(stderr, "cupool: trace needs a file that CUPOOL_TRACE left, or the number of a process\n");
    return kMisuse;
  }
  const std::string& path = arguments.operands[0];
  int64_t pid = 0;
  const char* const end = path.data() + path.size();
  const auto [at, error] = std::from_chars(path.data(), end, pid);
  if (error == std::errc() && at == end && pid > 0 && access(path.c_str(), F_OK) != 0)
    return attach(arguments, pid);
  if (arguments.has("--compress")) return compress(path, arguments.value("-o"));
  return arguments.has("--dump") ? dump(path) : summarize(arguments, path);
}

}  // namespace cupool::tools
