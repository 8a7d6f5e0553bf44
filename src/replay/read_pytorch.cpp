// See readers.hpp: PyTorch's snapshot. Its events are those of its own cache: sizes are rounded to 512 bytes,
// and each allocation counts as a piece of work on its stream. Blocks that its ring of events has forgotten,
// or that came before, were held from the beginning.
#include <algorithm>
#include <unordered_map>

#include "base/say.hpp"
#include "replay/builder.hpp"
#include "replay/pickle.hpp"
#include "replay/readers.hpp"

namespace cupool::replay {

namespace {

using Ref = Pickle::Ref;
constexpr size_t kMostDevices = 64;

class Snapshot {
 public:
  explicit Snapshot(const Pickle& pickle) : pickle_(pickle) {}

  bool convert(std::string* error) {
    const Ref traces = pickle_.at(pickle_.root(), "device_traces");
    if (pickle_.kind(traces) != Pickle::Kind::kList) {
      *error = "it has no device_traces: record them with torch.cuda.memory._record_memory_history()";
      return false;
    }
    if (pickle_.items(traces).size() > kMostDevices) {
      *error = "it has too many devices";
      return false;
    }
    gather(traces);
    Program& program = builder_.program();
    program.places.clear();
    for (size_t i = 0; i < std::max<size_t>(pickle_.items(traces).size(), 1); ++i)
      program.places.emplace_back().device = static_cast<int>(i);
    builder_.thread(0);
    for (const Event& event : events_) play(event);
    add_held_at_the_end();
    return true;
  }
  Program finish() {
    Program program = builder_.finish();
    program.form = "PyTorch";
    program.has_times = has_times_;
    program.stack_names = std::move(names_);
    return program;
  }

 private:
  struct Event {
    uint64_t time;
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint32_t stack;
    uint8_t place;
    bool is_free;
  };

  uint64_t field(Ref entry, const char* name) const {
    return static_cast<uint64_t>(pickle_.number(pickle_.at(entry, name)));
  }

  void gather(Ref traces) {
    uint8_t place = 0;
    for (const Ref trace : pickle_.items(traces)) {
      for (const Ref entry : pickle_.items(trace)) {
        const std::string_view action = pickle_.text(pickle_.at(entry, "action"));
        const bool is_free = action == "free_completed";
        if (!is_free && action != "alloc") continue;
        Event event{field(entry, "time_us"),
                    field(entry, "addr"),
                    field(entry, "size"),
                    field(entry, "stream"),
                    0,
                    place,
                    is_free};
        if (!is_free) event.stack = stack(pickle_.at(entry, "frames"));
        has_times_ = has_times_ && event.time != 0;
        events_.push_back(event);
      }
      ++place;
    }
    has_times_ = has_times_ && !events_.empty();
    if (has_times_)
      std::stable_sort(events_.begin(), events_.end(),
                       [](const Event& a, const Event& b) { return a.time < b.time; });
  }

  Step step_of(const Event& event) const {
    Step step;
    step.time = has_times_ ? std::min(event.time, uint64_t{1} << 53) * 1000 : 1;
    step.stream = Builder::lane(event.stream & (~uint64_t{0} >> 13));
    step.place = event.place;
    return step;
  }
  static uint64_t name_of(uint8_t place, uint64_t address) {
    return address ^ static_cast<uint64_t>(place) << 56;
  }

  void play(const Event& event) {
    Step step = step_of(event);
    const uint64_t name = name_of(event.place, event.address);
    if (event.is_free) {
      if (!builder_.is_held(name)) builder_.held_before(name, event.bytes, step);
      builder_.free(name, step);
      return;
    }
    if (builder_.is_held(name)) builder_.free(name, step);  // its free is not in the record
    seen_.emplace(name, true);
    if (!builder_.allocate(name, event.bytes, step, event.stack)) return;
    step.what = Do::kWork;
    builder_.other(step);
  }

  // Blocks that are held at the end, and that no event tells of.
  void add_held_at_the_end() {
    for (const Ref segment : pickle_.items(pickle_.at(pickle_.root(), "segments"))) {
      const uint64_t device = field(segment, "device");
      if (device >= builder_.program().places.size()) continue;
      uint64_t address = field(segment, "address");
      for (const Ref block : pickle_.items(pickle_.at(segment, "blocks"))) {
        const uint64_t bytes = field(block, "size");
        if (const uint64_t own = field(block, "address"); own != 0) address = own;
        const Event event{0,    address, bytes, field(segment, "stream"), 0, static_cast<uint8_t>(device),
                          false};
        const uint64_t name = name_of(event.place, address);
        const bool is_held = pickle_.text(pickle_.at(block, "state")) == "active_allocated";
        if (is_held && !builder_.is_held(name) && seen_.count(name) == 0)
          builder_.held_before(name, bytes, step_of(event), stack(pickle_.at(block, "frames")));
        address += bytes;
      }
    }
  }

  // The innermost frames as one text. Events of one place share their list of frames.
  uint32_t stack(Ref frames) {
    constexpr size_t kMostFrames = 6;
    const auto& all = pickle_.items(frames);
    if (all.empty()) return 0;
    const auto [known, is_new] = stacks_.try_emplace(frames, 0);
    if (!is_new) return known->second;
    std::string text;
    for (size_t i = 0; i < all.size() && i < kMostFrames; ++i) {
      const std::string_view file = pickle_.text(pickle_.at(all[i], "filename"));
      text += make_text("{}{} ({}:{})", i == 0 ? "" : " < ", pickle_.text(pickle_.at(all[i], "name")),
                        file.substr(file.rfind('/') == std::string_view::npos ? 0 : file.rfind('/') + 1),
                        pickle_.number(pickle_.at(all[i], "line")));
    }
    if (names_.empty()) names_.emplace_back();
    const auto [name, is_first] = by_text_.try_emplace(text, static_cast<uint32_t>(names_.size()));
    if (is_first) names_.push_back(text);
    stacks_[frames] = name->second;
    return name->second;
  }

  const Pickle& pickle_;
  Builder builder_;
  std::vector<Event> events_;
  bool has_times_ = true;
  std::unordered_map<uint64_t, bool> seen_;
  std::unordered_map<Ref, uint32_t> stacks_;
  std::unordered_map<std::string, uint32_t> by_text_;
  std::vector<std::string> names_;
};

}  // namespace

bool read_pytorch_snapshot(std::string_view bytes, Program* out, std::string* error) {
  Pickle pickle;
  if (!pickle.read(bytes)) {
    *error = pickle.error();
    return false;
  }
  Snapshot snapshot(pickle);
  if (!snapshot.convert(error)) return false;
  *out = snapshot.finish();
  if (out->blocks == 0) *error = "it has no allocations";
  return out->blocks != 0;
}

}  // namespace cupool::replay
