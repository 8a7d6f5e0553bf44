// See readers.hpp: the plain text form, and which form a file has.
#include "base/say.hpp"
#include "replay/builder.hpp"
#include "replay/lines.hpp"
#include "replay/readers.hpp"

namespace cupool::replay {

namespace {

struct Line {
  char kind = 0;
  int64_t first = 0;
  uint64_t bytes = 0;
  uint64_t thread = 0;
  uint64_t time = 0;
  bool has_time = false;
};

bool parse(std::string_view text, Line* line) {
  const std::string_view kind = take_word(text);
  if (kind.size() != 1 || std::string_view("afks").find(kind[0]) == std::string_view::npos) return false;
  line->kind = kind[0];
  if (!read_number(take_word(text), &line->first)) return false;
  if (line->kind == 'a' && !read_number(take_word(text), &line->bytes)) return false;
  const std::string_view thread = take_word(text);
  if (!thread.empty() && !read_number(thread, &line->thread)) return false;
  std::string_view rest = take_word(text);
  line->has_time = !rest.empty();
  if (line->has_time && !read_number(rest, &line->time)) return false;
  return take_word(text).empty() && line->first >= -1 && line->time < uint64_t{1} << 53;
}

}  // namespace

bool read_text(std::string_view text, Program* out, std::string* error) {
  Builder builder;
  bool has_times = true;
  bool has_waits = false;
  uint64_t number = 0;
  uint64_t last = 0;
  while (!text.empty()) {
    std::string_view bare = take_line(text);
    ++number;
    if (bare.empty() || bare[0] == '#') continue;
    Line line;
    if (!parse(bare, &line)) {
      *error = make_text(
          "line {} is none of: a ID BYTES [THREAD], f ID [THREAD], k STREAM [THREAD], s STREAM [THREAD]",
          number);
      return false;
    }
    has_times = has_times && line.has_time;
    last = std::max(last, line.time);
    Step step;
    step.thread = builder.thread(line.thread);
    step.time = (last + 1) * 1000;
    const auto name = static_cast<uint64_t>(line.first);
    if (line.kind == 'a' && !builder.allocate(name, line.bytes, step)) {
      *error = make_text("line {} allocates {} bytes as {}, which is {}", number, line.bytes, line.first,
                         builder.is_held(name) ? "held already" : "no size of a block");
      return false;
    }
    if (line.kind == 'f' && !builder.free(name, step)) {
      *error = make_text("line {} frees {}, which is not held", number, line.first);
      return false;
    }
    if (line.kind == 'k' || line.kind == 's') {
      if (line.kind == 'k' && line.first < 0) {
        *error = make_text("line {} submits work to no stream", number);
        return false;
      }
      has_waits = has_waits || line.kind == 's';
      step.what = line.kind == 'k' ? Do::kWork : Do::kWait;
      step.stream = line.first < 0 ? 0 : Builder::lane(name);
      builder.other(step);
    }
  }
  *out = builder.finish();
  out->form = "text";
  out->has_times = has_times && !out->steps.empty();
  out->has_waits = has_waits;
  if (out->blocks == 0) *error = "it has no allocations";
  return out->blocks != 0;
}

Reader reader_of(std::string_view bytes) {
  if (bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) return read_pytorch_snapshot;
  std::string_view text = bytes.substr(0, 4096);
  if (take_line(text).find("Thread,Time,Action,Pointer,Size,Stream") != std::string_view::npos)
    return read_rmm_log;
  std::string_view first = bytes.substr(0, 4096);
  for (std::string_view line; !first.empty();) {
    line = take_line(first);
    Line parsed;
    if (!line.empty() && line[0] != '#') return parse(line, &parsed) ? read_text : nullptr;
  }
  return nullptr;
}

}  // namespace cupool::replay
