// See readers.hpp: RMM's log. It tells no work and no waits; each allocation counts as a piece of work on its
// stream, which is what it was made for.
#include <array>

#include "base/say.hpp"
#include "replay/builder.hpp"
#include "replay/lines.hpp"
#include "replay/readers.hpp"

namespace cupool::replay {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kDay = 24 * 3600 * kSecond;

// "10:15:22:123456" or "10:15:22.123456".
bool read_time(std::string_view text, uint64_t* ns) {
  uint64_t hours = 0;
  uint64_t minutes = 0;
  uint64_t seconds = 0;
  if (!read_number(take_up_to(text, ':'), &hours) || !read_number(take_up_to(text, ':'), &minutes))
    return false;
  const size_t end = text.find_first_of(".:");
  if (!read_number(text.substr(0, end), &seconds) || hours > 24 || minutes > 60 || seconds > 61) return false;
  *ns = ((hours * 60 + minutes) * 60 + seconds) * kSecond;
  if (end == std::string_view::npos) return true;
  uint64_t unit = kSecond / 10;
  for (const char digit : text.substr(end + 1)) {
    if (digit < '0' || digit > '9') return false;
    *ns += static_cast<uint64_t>(digit - '0') * unit;
    unit /= 10;
  }
  return true;
}

bool read_handle(std::string_view text, uint64_t* out) {
  if (text == "(nil)" || text == "nullptr") {
    *out = 0;
    return true;
  }
  if (text.starts_with("0x")) return read_number(text.substr(2), out, 16);
  return read_number(text, out);
}

}  // namespace

bool read_rmm_log(std::string_view text, Program* out, std::string* error) {
  Builder builder;
  uint64_t number = 1;
  uint64_t days = 0;
  uint64_t last = 0;
  take_line(text);
  while (!text.empty()) {
    std::string_view line = take_line(text);
    ++number;
    if (line.empty()) continue;
    std::array<std::string_view, 6> cells;
    for (std::string_view& cell : cells) cell = take_up_to(line, ',');
    const auto [thread, time, action, pointer, size, stream] = cells;
    uint64_t name = 0;
    uint64_t bytes = 0;
    uint64_t at = 0;
    uint64_t handle = 0;
    uint64_t of = 0;
    const bool is_good = read_number(thread, &of) && read_time(time, &at) && read_handle(pointer, &name) &&
                         read_number(size, &bytes) && read_handle(stream, &handle) && line.empty();
    if (!is_good) {
      *error = make_text("line {} is not Thread,Time,Action,Pointer,Size,Stream", number);
      return false;
    }
    if (at + days * kDay + kDay / 2 < last) ++days;
    last = std::max(last, at + days * kDay);
    Step step;
    step.thread = builder.thread(of);
    step.stream = Builder::lane(handle & (~uint64_t{0} >> 13));
    step.time = last + 1;
    if (action == "allocate") {
      if (!builder.allocate(name, bytes, step)) {
        if (bytes == 0) continue;
        *error = make_text("line {} allocates {} bytes at {}, {}", number, bytes, pointer,
                           builder.is_held(name) ? "which is held" : "which is no size of a block");
        return false;
      }
      step.what = Do::kWork;
      builder.other(step);
    } else if (action == "free") {
      if (!builder.is_held(name)) builder.held_before(name, bytes, step);
      builder.free(name, step);
    } else if (action != "allocate failure") {
      *error = make_text("line {} is neither an allocation nor a free", number);
      return false;
    }
  }
  *out = builder.finish();
  out->form = "RMM";
  out->has_times = true;
  if (out->blocks == 0) *error = "it has no allocations";
  return out->blocks != 0;
}

}  // namespace cupool::replay
