// `cupool trace`: what a trace holds, as a summary or line by line.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/table.hpp"
#include "tools/trace_reader.hpp"

namespace cupool::tools {
namespace {

struct Close {
  void operator()(std::FILE* file) const { fclose(file); }
};

// What a summary says, gathered while the events go by.
class Summary {
 public:
  explicit Summary(const TraceAbout& about)
      : about_(about),
        live_(about),
        counts_(about.events.size()),
        counters_(about.find_event("counters")),
        lost_(about.find_event("lost")) {}

  void see(const Happened& happened) {
    if (first_ == 0) first_ = happened.time;
    last_ = std::max(last_, happened.time);
    ++counts_[happened.event];
    live_.see(happened);
    if (happened.event == counters_) compare(happened);
    if (happened.event == lost_) missing_ += happened.values[0];
  }
  void print(const TraceReader& reader) const {
    say("{}[{}] on {}{}{}, cupool {}\n", printable(about_.program), about_.pid, printable(about_.host),
        about_.rank.empty() ? "" : ", rank ", printable(about_.rank), printable(about_.library));
    const uint64_t ns = last_ - std::min(first_, last_);
    say("{} events in {}.{:03} s, {} bytes each\n", reader.events(), ns / 1'000'000'000,
        ns / 1'000'000 % 1000, reader.events() == 0 ? 0 : reader.event_bytes() / reader.events());
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0) say("  {} {}\n", counts_[i], printable(about_.events[i].name));
    }
    for (const auto& [place, sum] : live_.sums()) {
      say("device {}, {}: {} in {} blocks at the end ({} asked for), {} at most\n", place.first,
          kind(place.second), print_bytes(sum.given), sum.blocks, print_bytes(sum.asked),
          print_bytes(sum.most));
    }
    if (compared_ != 0) say("the counters agree at {} of {} moments\n", agreed_, compared_);
    if (missing_ != 0) say("{} events are missing: they found no room\n", missing_);
    if (reader.is_cut()) say("the last block is incomplete: the program was killed while it was written\n");
  }

 private:
  std::string kind(uint64_t number) const {
    const size_t event = about_.find_event("allocated");
    const int field = event < about_.events.size() ? about_.events[event].find("kind") : -1;
    if (field < 0) return "memory";
    const TraceField& found = about_.events[event].fields[static_cast<size_t>(field)];
    if (found.type != trace::FieldType::kChoice) return "memory";
    const auto& words = about_.choices[found.choice];
    return number < words.size() ? printable(words[number]) : "memory";
  }
  void compare(const Happened& happened) {
    const TraceEvent& event = about_.events[happened.event];
    const auto value = [&](const char* name) {
      const int field = event.find(name);
      return field < 0 ? 0 : happened.values[static_cast<size_t>(field)];
    };
    const TraceLive::Sum sum = live_.counted(value("device"));
    ++compared_;
    if (sum.given == value("live") && sum.asked == value("asked")) ++agreed_;
  }

  const TraceAbout& about_;
  TraceLive live_;
  std::vector<uint64_t> counts_;
  size_t counters_;
  size_t lost_;
  uint64_t first_ = 0;
  uint64_t last_ = 0;
  uint64_t missing_ = 0;
  uint64_t compared_ = 0;
  uint64_t agreed_ = 0;
};

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
    say(stderr, "cupool: trace needs a file that CUPOOL_TRACE left\n");
    return kMisuse;
  }
  const std::string& path = arguments.operands[0];
  // (A pipe would be waited for until somebody writes to it.)
  struct stat about;
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    say(stderr, "cupool: cannot read {}: it is not a file\n", path);
    return 1;
  }
  const std::unique_ptr<std::FILE, Close> file(fopen(path.c_str(), "re"));
  if (file == nullptr) {
    say(stderr, "cupool: cannot open {}: {}\n", path, strerror(errno));
    return 1;
  }
  TraceReader reader(file.get());
  if (!reader.begin()) {
    say(stderr, "cupool: cannot read {}: {}\n", path, reader.error());
    return 1;
  }
  const bool dumps = arguments.has("--dump");
  Summary summary(reader.about());
  const bool is_whole = reader.read([&](const Happened& happened) {
    if (dumps) {
      say("{}\n", print_event(reader.about(), happened, reader.about().monotonic));
    } else {
      summary.see(happened);
    }
  });
  if (!dumps) summary.print(reader);
  if (is_whole) return 0;
  fflush(stdout);
  say(stderr, "cupool: cannot read all of {}: {}\n", path, reader.error());
  return 1;
}

}  // namespace cupool::tools
