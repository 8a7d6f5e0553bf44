// All of a trace in memory, in columns: every life of a block, every segment, wait and phase. The page, the
// text and the exports are made from it. About 80 bytes for each allocation. Trusts nothing of what it reads:
// frees of what nobody has, lives that overlap and segments that come twice end where the next one begins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "see/life_table.hpp"
#include "tools/trace_reader.hpp"

namespace cupool::see {

inline constexpr uint64_t kNever = ~uint64_t{0};
inline constexpr uint32_t kNone = ~uint32_t{0};

// A block, from its allocation to its free. A moment is the number of an event in Model::order, from 0.
struct Life {
  uint64_t address = 0;
  uint64_t asked = 0;
  uint64_t given = 0;  // what was asked for and the rest of its block
  uint64_t begin = 0;
  uint64_t end = kNever;
  uint32_t stack = 0;  // a number of Model::stacks
  uint32_t free_stack = 0;
  uint32_t stream = 0;      // a number of Model::streams
  uint32_t call_begin = 0;  // how many allocations there were before
  uint32_t call_end = kNone;
  uint16_t thread = 0;  // a number of Model::threads
  uint16_t free_thread = 0;
  uint16_t call = 0;
  uint16_t free_call = 0;
  uint16_t context = 0;
  uint8_t kind = 0;
  uint8_t device = 0;
  uint8_t sort = 0;
  bool is_before = false;  // it was there when the trace began
};

// Memory that the pool took from the driver, or a chunk that it mapped.
struct Segment {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t begin = 0;
  uint64_t end = kNever;
  uint8_t device = 0;
  bool is_chunk = false;
};
// What the pool did with the driver.
struct Dealing {
  uint64_t time = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t ns = 0;
  uint8_t what = 0;
  uint8_t why = 0;
  uint8_t device = 0;
};

struct Wait {
  uint64_t time = 0;  // when it ended
  uint64_t ns = 0;
  uint32_t stack = 0;
  uint16_t thread = 0;
  uint16_t call = 0;
  uint8_t cause = 0;
};

struct Phase {
  uint64_t begin = 0;
  uint64_t end = kNever;
  uint32_t name = 0;  // a number of Model::phase_names
  uint16_t thread = 0;
  uint16_t depth = 0;
};

struct Failure {
  uint64_t time = 0;
  uint64_t asked = 0;
  uint32_t stack = 0;
  uint16_t thread = 0;
  uint16_t call = 0;
  uint8_t device = 0;
  bool is_final = false;  // out of memory: nothing more could be given back
};

// What the driver said of a device.
struct DriverSays {
  uint64_t time = 0;
  uint64_t used = 0;
  uint64_t total = 0;
  uint8_t device = 0;
};
// What the pool holds of a device, after an event; what it says itself, if `is_said`.
struct Reserved {
  uint64_t time = 0;
  uint64_t bytes = 0;
  uint8_t device = 0;
};

inline constexpr uint32_t kIsFree = uint32_t{1} << 31;

class Model {
 public:
  explicit Model(tools::TraceReader& reader) : reader_(reader) {}
  // False: the trace is damaged, and this holds what came before; reader().error() says where. `progress` is
  // called now and then.
  bool read(const std::function<void()>& progress);

  const tools::TraceAbout& about() const { return reader_.about(); }
  const tools::TraceReader& reader() const { return reader_; }
  // Words of the file's tables; "#7" for what they do not know.
  std::string kind_name(uint64_t kind) const { return word(kinds_, kind); }
  std::string call_name(uint64_t call) const;
  std::string cause_name(uint64_t cause) const { return word(causes_, cause); }
  std::string dealing_name(uint64_t what) const { return word(dealings_, what); }
  std::string why_name(uint64_t why) const { return word(whys_, why); }
  bool is_hosts(const Life& life) const { return is_host_kind_[life.kind]; }
  bool is_pools(const Life& life) const { return life.kind == pool_kind_; }
  uint64_t stack_number(uint32_t stack) const { return stack_numbers[stack]; }
  // When the trace began: all moments are told from there, by every verb of the command.
  uint64_t began() const { return reader_.began(); }
  uint64_t since_began(uint64_t time) const { return time - std::min(began(), time); }
  // How long it is.
  uint64_t ns() const { return since_began(last); }

  uint64_t first = 0;  // of the times of its events: what is drawn begins there
  uint64_t last = 0;
  std::vector<Life> lives;
  // Allocations and frees in the order of time: the number of a life, with kIsFree for its end.
  std::vector<uint32_t> order;
  std::vector<Segment> segments;
  std::vector<Dealing> dealings;
  std::vector<Wait> waits;
  std::vector<Phase> phases;
  // Those that any thread may end, so that they lie across each other: of the thread that began them, `depth`
  // their row among themselves.
  std::vector<Phase> ranges;
  // Their begins and ends as they came: the number of a phase, with kIsFree for its end.
  std::vector<uint32_t> phase_edges;
  std::vector<Failure> failures;
  std::vector<DriverSays> driver_says;
  std::vector<Reserved> reserved;       // each time that it changes
  std::vector<uint64_t> stack_numbers;  // 0: those without one; else a number of the file's
  std::vector<uint64_t> streams;
  std::vector<uint32_t> threads;
  std::vector<std::string> phase_names;
  uint64_t devices = 1;
  uint64_t lost = 0;
  uint64_t unknown_frees = 0;
  uint64_t sampled = 0;    // lives whose stacks are a sample
  uint64_t stackless = 0;  // lives without a stack
  uint64_t sample_bytes = 0;

 private:
  struct Fields;
  void take(const tools::Happened& now);
  void allocate(const tools::Happened& now, const Fields& at);
  void end_life(uint32_t life, uint64_t time);
  void end_context(uint64_t context, uint64_t time);
  void deal(const tools::Happened& now);
  void phase(const tools::Happened& now);
  void range(const tools::Happened& now, bool is_start);
  uint32_t number_of_phase(const std::string& name);
  void set_reserved(uint64_t time, uint64_t device, uint64_t bytes);
  std::string word(const std::vector<std::string>* words, uint64_t number) const;
  const std::vector<std::string>* words_of(std::string_view event, std::string_view field) const;
  void find_fields();

  struct Fields {
    uint32_t event = kNone;
    int address = -1, asked = -1, more = -1, sort = -1, stack = -1, call = -1, kind = -1, stream = -1,
        context = -1, device = -1, sample = -1, thread = -1, ns = -1, cause = -1, what = -1, why = -1,
        bytes = -1, free = -1, total = -1, reserved = -1, edge = -1, range = -1, count = -1, result = -1;
  };
  Fields fields_of(std::string_view event) const;
  static uint64_t value(const tools::Happened& now, int field) {
    return field < 0 ? 0 : now.values[static_cast<size_t>(field)];
  }
  uint32_t number_of_stack(uint64_t stack);
  uint32_t number_of_stream(uint64_t stream);
  uint16_t number_of_thread(uint32_t thread);
  uint16_t number_of_context(uint64_t context);

  tools::TraceReader& reader_;
  Fields allocated_, freed_, live_, failed_, waited_, segment_, out_of_memory_, driver_, counters_, phase_,
      context_ended_, lost_;
  const std::vector<std::string>*kinds_ = nullptr, *causes_ = nullptr, *dealings_ = nullptr, *whys_ = nullptr;
  bool is_host_kind_[256] = {};
  uint8_t pool_kind_ = 0;
  LifeTable places_;
  std::unordered_map<uint64_t, uint32_t> stack_index_;
  std::unordered_map<uint64_t, uint32_t> stream_index_;
  std::unordered_map<uint32_t, uint16_t> thread_index_;
  std::unordered_map<uint64_t, uint16_t> context_index_;
  std::map<std::string, uint32_t> phase_index_;
  std::unordered_map<uint16_t, std::vector<uint32_t>> open_phases_;
  std::map<uint64_t, uint32_t> open_ranges_;    // by their numbers
  std::vector<bool> range_rows_;                // those that an open range has
  std::map<uint64_t, uint32_t> open_segments_;  // by address
  std::vector<uint64_t> reserved_now_;
  uint64_t events_ = 0;
  uint32_t calls_ = 0;
};

}  // namespace cupool::see
