// Reads a trace (docs/trace-format.md), of any program and of any version that is not newer: block by block,
// by the tables in the file's own head, and gives its events in the order of their times. Trusts nothing: a
// file that is cut, damaged or made up ends in a sentence. Memory is bounded by what two seconds of a program
// hold, or by a fixed number of events: those of each thread wait in its own row until all that is earlier is
// there, and the rows are merged.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
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
  // Goes to the last live set before a moment, so many nanoseconds after the trace began, and reads of what
  // comes before it the stacks and modules alone: read() begins there. Stays where it is in a file without
  // one, and in one that is compressed. pre: begin(), and nothing was read.
  void skip_to(uint64_t ns);
  // Called by see(): no more of them.
  void stop() { is_stopped_ = true; }
  // Calls see(event) for each, in the order of time. False: the file is damaged, and error() says where; what
  // came before was seen.
  bool read(const std::function<void(const Happened&)>& see);
  // Those of the events that were seen so far.
  const TraceStacks& stacks() const { return stacks_; }
  // When the trace began: of one that was kept in memory, when what is left of it began. All that the program
  // held then is in its first live set, or in events that are not later.
  uint64_t began() const { return began_; }

  const std::string& error() const { return error_; }
  // The last block is not all there: the program was killed while it was written.
  bool is_cut() const { return is_cut_; }
  // After read(): what a reader should know of how the trace ends; empty: it is all there.
  std::string missing_end() const;
  uint64_t blocks() const { return blocks_; }
  uint64_t event_bytes() const { return event_bytes_; }
  uint64_t events() const { return events_; }
  uint64_t live_sets() const { return live_sets_; }

 private:
  enum class Next { kBlock, kEnd, kDamaged };
  Next next_block(trace::BlockHead* head);
  bool fail(const std::string& why);
  // Of the block at a place of the file. False: there is none.
  bool head_at(uint64_t offset, trace::BlockHead* head);
  bool go_to(uint64_t offset);
  // The place of the last live set that is all told before the moment; 0: there is none.
  uint64_t find_live_set(uint64_t ns);
  bool read_records(const trace::BlockHead& head);
  bool parse_about();

  // An event that waits: its time, and where it lies in its thread's words. Those that come first at one
  // moment are the frees, which were of the life before.
  struct Ref {
    uint64_t time;
    uint64_t at;
    static constexpr uint64_t kLater = uint64_t{1} << 63;  // in `at`: no free
    bool comes_before(const Ref& other) const {
      return time != other.time ? time < other.time : (at & kLater) < (other.at & kLater);
    }
  };
  // In `words` an event is its number with the counts of its values and of the bytes of its text, its
  // values, its text.
  struct Row {
    uint32_t thread = 0;
    bool is_sorted = true;
    size_t next = 0;  // of refs
    std::vector<Ref> refs;
    std::vector<uint64_t> words;
  };
  // The events of a block, at the end of a row.
  bool decode(const trace::BlockHead& head, Row* row);
  Row& row_of(uint32_t thread);
  uint64_t middle_time() const;
  void emit(uint64_t upto, const std::function<void(const Happened&)>& see);
  void sort(Row* row) const;
  void drop_seen();

  std::FILE* file_;
  std::string error_;
  TraceAbout about_;
  TraceStacks stacks_;
  std::vector<uint8_t> content_;
  size_t freed_ = 0;
  size_t ended_ = 0;
  std::unordered_map<uint32_t, std::unique_ptr<Row>> rows_;
  size_t pending_ = 0;  // events in them
  size_t left_ = 0;     // of them after the last ones were given out
  // The last values of each event's fields, and in which block they were told.
  std::vector<std::pair<uint64_t, std::array<uint64_t, trace::kMostFields>>> numbers_;
  uint64_t began_ = 0;
  uint64_t offset_ = 0;
  uint64_t blocks_ = 0;
  uint64_t events_ = 0;
  uint64_t event_bytes_ = 0;
  uint64_t live_sets_ = 0;
  bool is_cut_ = false;
  bool has_end_ = false;
  bool is_skipped_ = false;  // what comes first is not what the trace began with
  bool is_stopped_ = false;
};

}  // namespace cupool::tools
