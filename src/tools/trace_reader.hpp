// Reads a trace (docs/trace-format.md), of any program and of any version that is not newer: block by block,
// by the tables in the file's own head, and gives its events in the order of their times. Trusts nothing: a
// file that is cut, damaged or made up ends in a sentence. Memory is bounded by what two rounds of gathering
// hold, or by a fixed number of events.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/trace_stacks.hpp"
#include "trace/events.hpp"
#include "trace/format.hpp"

namespace cupool::tools {

// The tables of a file.
struct TraceField {
  std::string name;
  trace::FieldType type = trace::FieldType::kNumber;
  size_t choice = 0;
};
struct TraceEvent {
  std::string name;
  std::vector<TraceField> fields;
  // The place of the field of that name; -1: it has none.
  int find(std::string_view field) const;
};
struct TraceAbout {
  uint64_t version = 0;
  uint64_t monotonic = 0;  // two clocks at the same moment
  uint64_t wall = 0;
  uint64_t pid = 0;
  std::string program, host, rank, library;
  std::vector<std::vector<std::string>> choices;
  std::vector<TraceEvent> events;
  std::vector<std::string> calls;
  size_t find_event(std::string_view name) const;  // events.size(): there is none
};

// One event.
struct Happened {
  uint64_t time = 0;
  uint32_t thread = 0;
  uint32_t event = 0;  // its place in the table
  std::array<uint64_t, trace::kMostFields> values{};
  std::string text;  // of the last text field
};

class TraceReader {
 public:
  explicit TraceReader(std::FILE* file) : file_(file) {}

  // The head of the file. False: it is no trace that this program reads; error() says why.
  bool begin();
  const TraceAbout& about() const { return about_; }
  // Calls see(event) for each, in the order of time. False: the file is damaged, and error() says where; what
  // came before was seen.
  bool read(const std::function<void(const Happened&)>& see);
  // Those of the events that were seen so far.
  const TraceStacks& stacks() const { return stacks_; }

  const std::string& error() const { return error_; }
  // The last block is not all there: the program was killed while it was written.
  bool is_cut() const { return is_cut_; }
  uint64_t blocks() const { return blocks_; }
  uint64_t event_bytes() const { return event_bytes_; }
  uint64_t events() const { return events_; }
  uint64_t live_sets() const { return live_sets_; }

 private:
  enum class Next { kBlock, kEnd, kDamaged };
  Next next_block(trace::BlockHead* head);
  bool fail(const std::string& why);
  bool parse_about();
  bool decode(const trace::BlockHead& head);
  uint64_t middle_time() const;
  void emit(uint64_t upto, const std::function<void(const Happened&)>& see);

  std::FILE* file_;
  std::string error_;
  TraceAbout about_;
  TraceStacks stacks_;
  std::vector<uint8_t> content_;
  std::vector<Happened> pending_;
  size_t left_ = 0;  // of them after the last ones were given out
  // The last values of each event's fields, and in which block they were told.
  std::vector<std::pair<uint64_t, std::array<uint64_t, trace::kMostFields>>> numbers_;
  uint64_t offset_ = 0;
  uint64_t blocks_ = 0;
  uint64_t events_ = 0;
  uint64_t event_bytes_ = 0;
  uint64_t live_sets_ = 0;
  bool is_cut_ = false;
};

// One line of text, without its end. `begin`: the time from which times are counted.
std::string print_event(const TraceAbout& about, const Happened& happened, uint64_t begin);

// What the program holds while its events go by. Of each place the latest counts.
class TraceLive {
 public:
  explicit TraceLive(const TraceAbout& about);
  struct Block {
    uint64_t time = 0;
    uint64_t asked = 0;
    uint64_t more = 0;
    uint64_t context = 0;
    uint64_t device = 0;
    uint64_t kind = 0;
    uint32_t thread = 0;
    bool is_live = false;
  };
  struct Sum {
    uint64_t blocks = 0;
    uint64_t asked = 0;
    uint64_t given = 0;
    uint64_t most = 0;  // the highest `given`
  };
  void see(const Happened& happened);
  // By device and kind.
  const std::map<std::pair<uint64_t, uint64_t>, Sum>& sums() const { return sums_; }
  // Of the kinds that the counters of a device count: pool, whole, native.
  Sum counted(uint64_t device) const;

 private:
  uint64_t value(const Happened& happened, int field) const {
    return field < 0 ? 0 : happened.values[static_cast<size_t>(field)];
  }
  void add(Block& block, const Block& now);
  void drop(Block& block, uint64_t time);

  struct Fields {
    int address, asked, more, context, device, kind;
  };
  Fields fields_of(std::string_view event) const;
  const TraceAbout& about_;
  size_t allocated_, freed_, live_, context_ended_;
  Fields of_allocated_, of_freed_, of_live_, of_context_ended_;
  std::map<std::pair<uint8_t, uint64_t>, Block> blocks_;
  std::map<std::pair<uint64_t, uint64_t>, Sum> sums_;
};

}  // namespace cupool::tools
