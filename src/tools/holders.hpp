// Who holds the memory of a program at a moment of its trace: the live blocks by call stack and kind, or
// without stacks by call and kind, the largest first. For `cupool trace`, `diff` and `top`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/arguments.hpp"
#include "tools/code_names.hpp"
#include "tools/stack_text.hpp"
#include "tools/trace_file.hpp"
#include "tools/trace_live.hpp"
#include "tools/trace_reader.hpp"

namespace cupool::tools {

// A moment of a trace, as the user writes it: begin, peak, end, or how long after it began: 12.5, 12.5s,
// 700ms or 35us.
struct Moment {
  enum class Which { kBegin, kPeak, kEnd, kTime };
  Which which = Which::kEnd;
  uint64_t ns = 0;
  // False: it is none.
  static bool parse(const std::string& text, Moment* out);
  // "at the peak", "at the end", "3.500 s after the beginning"
  std::string print() const;
};

// --top. False: it is no number, as was said.
bool read_most(const Arguments& arguments, size_t* out);

struct Holder {
  uint64_t stack = 0;  // 0: it has none
  uint64_t call = 0;
  uint64_t kind = 0;
  // Estimates, where stacks were drawn.
  double bytes = 0;
  double blocks = 0;
};

class Holders {
 public:
  explicit Holders(CodeNames& names) : names_(names) {}

  // Reads the trace up to the moment. False: it cannot be read at all, as was said on stderr. `also` sees
  // each event on the way.
  using See = std::function<void(const Happened&)>;
  bool read(const std::string& path, const Moment& moment, const See& also = nullptr);

  const std::vector<Holder>& all() const { return all_; }
  const TraceAbout& about() const { return reader_->about(); }
  const TraceReader& reader() const { return *reader_; }
  const TraceLive& live() const { return *live_; }
  bool is_whole() const { return is_whole_; }
  // Whether stacks were recorded, and whether only for some, by chance.
  bool has_stacks() const { return has_stacks_; }
  bool is_sampled() const { return is_sampled_; }
  // How long after the trace began.
  uint64_t time() const { return time_; }
  // Of device memory and of the host's.
  uint64_t device_bytes() const { return live_->device_bytes(); }

  // The lines of a holder's stack; without one, its call.
  std::vector<std::string> lines(const Holder& holder);
  std::string kind(const Holder& holder) const;

 private:
  void group();

  CodeNames& names_;
  OpenFile file_;
  std::unique_ptr<TraceReader> reader_;
  std::unique_ptr<TraceLive> live_;
  std::unique_ptr<StackText> text_;
  std::vector<Holder> all_;
  bool is_whole_ = false;
  bool has_stacks_ = false;
  bool is_sampled_ = false;
  uint64_t time_ = 0;
};

// The largest, each in a paragraph, as lines.
std::vector<std::string> holder_lines(Holders& holders, size_t most);
// What is missing for more names; to stderr.
void print_missing(const CodeNames& names);
// A moment, from its nanoseconds since the trace began: "12.500000 s"; rounded up, so that --at with these
// figures sees what happened then.
std::string print_moment(uint64_t ns);
// "412 MiB in 12 blocks"
std::string print_held(double bytes, double blocks);
// The word of a choice of an event's field; "?": there is none.
std::string print_choice(const TraceAbout& about, const char* event, const char* field, uint64_t number);
std::string print_call(const TraceAbout& about, uint64_t number);

}  // namespace cupool::tools
