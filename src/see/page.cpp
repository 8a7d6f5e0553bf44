// See page.hpp. The data: a head in JSON, which names every column, and the columns as varints, one behind
// the other; page/data.ts reads it.
#include "see/page.hpp"

#include <algorithm>

#include "see/findings.hpp"
#include "see/tree.hpp"
#include "tools/json.hpp"
#include "trace/format.hpp"

extern "C" const char cupool_page_begin[];
extern "C" const char cupool_page_end[];

namespace cupool::see {
namespace {

using Json = tools::Answer;

constexpr std::string_view kMark = "@CUPOOL_DATA@";
constexpr size_t kMostBands = 3000;

// Columns of numbers: as they are, folded if they may be negative, or as the differences from one to the
// next.
class Columns {
 public:
  enum class Form { kPlain, kSigned, kDelta };
  template <typename Rows, typename Value>
  void add(const char* name, const Rows& rows, Form form, Value&& value) {
    const size_t begin = bytes_.size();
    uint64_t last = 0;
    size_t count = 0;
    for (const auto& row : rows) {
      const auto now = static_cast<uint64_t>(value(row));
      uint8_t out[trace::kMostVarint];
      const uint64_t number = form == Form::kPlain    ? now
                              : form == Form::kSigned ? trace::fold(static_cast<int64_t>(now))
                                                      : trace::fold(static_cast<int64_t>(now - last));
      last = now;
      bytes_.append(reinterpret_cast<const char*>(out),
                    static_cast<size_t>(trace::put_varint(out, number) - out));
      ++count;
    }
    head_.push_back({{"name", name}, {"at", begin}, {"count", count}, {"form", static_cast<int>(form)}});
  }
  const Json& head() const { return head_; }
  const std::string& bytes() const { return bytes_; }

 private:
  Json head_ = Json::array();
  std::string bytes_;
};
using Form = Columns::Form;

constexpr auto kSame = [](const auto& value) { return value; };

void add_tree(Columns& columns, const std::string& name, const Tree& tree) {
  // (0: a root.)
  columns.add((name + ".parent").c_str(), tree.parents, Form::kDelta,
              [](uint32_t one) { return one == kNone ? 0 : uint64_t{one} + 1; });
  columns.add((name + ".label").c_str(), tree.labels, Form::kDelta, kSame);
  columns.add((name + ".leaf").c_str(), tree.leaves, Form::kDelta,
              [](uint32_t one) { return one == kNone ? 0 : uint64_t{one} + 1; });
}

template <typename Rows>
void add_histogram(Columns& columns, const std::string& name, const Rows& rows) {
  columns.add((name + ".moment").c_str(), rows, Form::kDelta, [](const auto& one) { return one.moment; });
  columns.add((name + ".bucket").c_str(), rows, Form::kPlain, [](const auto& one) { return one.bucket; });
  columns.add((name + ".count").c_str(), rows, Form::kPlain, [](const auto& one) { return one.count; });
  columns.add((name + ".bytes").c_str(), rows, Form::kPlain, [](const auto& one) { return one.bytes; });
}

void add_all(Columns& columns, const Model& model, const Picture& picture) {
  const auto since = [&](uint64_t time) { return model.since_began(time); };
  columns.add("times", picture.times, Form::kDelta, since);
  columns.add("events", picture.events, Form::kDelta, kSame);
  for (size_t i = 0; i < picture.live.size(); ++i)
    columns.add(("live." + std::to_string(i)).c_str(), picture.live[i].bytes, Form::kDelta, kSame);
  for (size_t i = 0; i < picture.reserved.size(); ++i) {
    columns.add(("reserved." + std::to_string(i)).c_str(), picture.reserved[i], Form::kDelta, kSame);
    columns.add(("used." + std::to_string(i)).c_str(), picture.used[i], Form::kDelta, kSame);
  }
  columns.add("group.holder", picture.groups, Form::kDelta, [](const Group& one) { return one.holder; });
  columns.add("group.kind", picture.groups, Form::kPlain, [](const Group& one) { return one.kind; });
  columns.add("group.device", picture.groups, Form::kPlain, [](const Group& one) { return one.device; });
  columns.add("cell.moment", picture.cells, Form::kDelta, [](const Cell& one) { return one.moment; });
  columns.add("cell.group", picture.cells, Form::kPlain, [](const Cell& one) { return one.group; });
  columns.add("cell.bytes", picture.cells, Form::kSigned, [](const Cell& one) { return one.bytes; });
  columns.add("cell.blocks", picture.cells, Form::kSigned, [](const Cell& one) { return one.blocks; });
  columns.add("cell.calls", picture.cells, Form::kPlain, [](const Cell& one) { return one.calls; });
  columns.add("cell.asked", picture.cells, Form::kPlain, [](const Cell& one) { return one.asked; });
  columns.add("cell.brief", picture.cells, Form::kPlain, [](const Cell& one) { return one.brief; });
  columns.add("call.moment", picture.call_cells, Form::kDelta,
              [](const CallCell& one) { return one.moment; });
  columns.add("call.row", picture.call_cells, Form::kPlain, [](const CallCell& one) { return one.row; });
  columns.add("call.count", picture.call_cells, Form::kPlain, [](const CallCell& one) { return one.count; });
  columns.add("call.ns", picture.call_cells, Form::kPlain, [](const CallCell& one) { return one.ns; });
  columns.add("call.most", picture.call_cells, Form::kPlain, [](const CallCell& one) { return one.most_ns; });
  add_histogram(columns, "size", picture.sizes);
  add_histogram(columns, "lifetime", picture.lifetimes);
  columns.add("map.moment", picture.map_moments, Form::kDelta, kSame);
  columns.add("region.address", picture.regions, Form::kDelta, [](const Region& one) { return one.address; });
  columns.add("region.bytes", picture.regions, Form::kPlain, [](const Region& one) { return one.bytes; });
  columns.add("region.device", picture.regions, Form::kPlain, [](const Region& one) { return one.device; });
  columns.add("region.known", picture.regions, Form::kPlain, [](const Region& one) { return one.is_known; });
  columns.add("region.from", picture.regions, Form::kPlain, [](const Region& one) { return one.from; });
  columns.add("region.to", picture.regions, Form::kPlain, [](const Region& one) { return one.to; });
  columns.add("block.region", picture.blocks, Form::kDelta, [](const MapBlock& one) { return one.region; });
  columns.add("block.group", picture.blocks, Form::kPlain, [](const MapBlock& one) { return one.group; });
  columns.add("block.offset", picture.blocks, Form::kDelta, [](const MapBlock& one) { return one.offset; });
  columns.add("block.bytes", picture.blocks, Form::kPlain, [](const MapBlock& one) { return one.bytes; });
  columns.add("block.from", picture.blocks, Form::kDelta, [](const MapBlock& one) { return one.from; });
  columns.add("block.to", picture.blocks, Form::kPlain,
              [](const MapBlock& one) { return one.to - one.from; });
  columns.add("block.begin", picture.blocks, Form::kDelta,
              [&](const MapBlock& one) { return since(one.begin); });
}

// The longest of them, in the order of time.
template <typename Row, typename Ns>
std::vector<const Row*> longest(const std::vector<Row>& rows, Ns&& ns) {
  std::vector<const Row*> out;
  out.reserve(rows.size());
  for (const Row& row : rows) out.push_back(&row);
  if (out.size() > kMostBands) {
    std::nth_element(out.begin(), out.begin() + kMostBands, out.end(),
                     [&](const Row* a, const Row* b) { return ns(*a) > ns(*b); });
    out.resize(kMostBands);
    std::sort(out.begin(), out.end());
  }
  return out;
}

void add_bands(Columns& columns, const Model& model) {
  const auto since = [&](uint64_t time) { return model.since_began(time); };
  const auto until = [&](const Phase* one) { return std::max(one->begin, std::min(one->end, model.last)); };
  // Those that lie across each other stand below those that lie within each other.
  std::vector<Phase> all = model.phases;
  uint32_t rows = 0;
  for (const Phase& one : all) rows = std::max(rows, uint32_t{one.depth} + 1);
  for (Phase one : model.ranges) {
    one.depth = static_cast<uint16_t>(std::min<uint32_t>(one.depth + rows, 0xFFFF));
    all.push_back(one);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Phase& one, const Phase& other) { return one.begin < other.begin; });
  const auto phases = longest(all, [&](const Phase& one) { return until(&one) - one.begin; });
  columns.add("phase.begin", phases, Form::kDelta, [&](const Phase* one) { return since(one->begin); });
  columns.add("phase.ns", phases, Form::kPlain, [&](const Phase* one) { return until(one) - one->begin; });
  columns.add("phase.name", phases, Form::kPlain, [](const Phase* one) { return one->name; });
  columns.add("phase.depth", phases, Form::kPlain, [](const Phase* one) { return one->depth; });
  columns.add("phase.thread", phases, Form::kPlain, [](const Phase* one) { return one->thread; });
  const auto waits = longest(model.waits, [](const Wait& one) { return one.ns; });
  columns.add("wait.begin", waits, Form::kDelta, [&](const Wait* one) { return since(one->time - one->ns); });
  columns.add("wait.ns", waits, Form::kPlain, [](const Wait* one) { return one->ns; });
  columns.add("wait.call", waits, Form::kPlain, [](const Wait* one) { return one->call; });
  columns.add("wait.cause", waits, Form::kPlain, [](const Wait* one) { return one->cause; });
  columns.add("wait.thread", waits, Form::kPlain, [](const Wait* one) { return one->thread; });
}

Json head_of(const Model& model, const Holders& holders, const Picture& picture,
             const std::vector<std::string>& sentences, const std::vector<std::string>& libraries) {
  const tools::TraceAbout& about = model.about();
  Json head;
  head["program"] = about.program;
  head["pid"] = about.pid;
  head["host"] = about.host;
  head["rank"] = about.rank;
  head["version"] = about.library;
  // (When the trace began, in milliseconds since 1970.)
  head["wall_ms"] =
      (about.wall - std::min(about.wall, about.monotonic - std::min(about.monotonic, model.began()))) /
      1'000'000;
  head["trace_events"] = model.reader().events();
  head["ns"] = model.ns();
  head["first_ns"] = model.since_began(model.first);
  head["devices"] = model.devices;
  head["totals"] = picture.totals;
  head["peaks"] = picture.peaks;
  head["peak"] = picture.peak;
  head["brief_calls"] = picture.brief_calls;
  head["least_block"] = picture.least_block;
  head["sentences"] = sentences;
  head["phases"] = model.phase_names;
  head["phase_count"] = model.phases.size() + model.ranges.size();
  head["wait_count"] = model.waits.size();
  head["threads"] = model.threads;
  head["libraries"] = libraries;
  Json& kinds = head["kinds"] = Json::array();
  uint8_t most = 0;
  for (const Series& one : picture.live) most = std::max(most, one.kind);
  for (unsigned kind = 0; kind <= most; ++kind) {
    Life life;
    life.kind = static_cast<uint8_t>(kind);
    const std::string name = model.kind_name(kind);
    kinds.push_back({{"name", name},
                     {"host", model.is_hosts(life)},
                     {"pool", name == "pool" || name == "whole" || name == "native"}});
  }
  Json& series = head["series"] = Json::array();
  for (const Series& one : picture.live) series.push_back({{"device", one.device}, {"kind", one.kind}});
  Json& frames = head["frames"] = Json::array();
  for (const Frame& frame : holders.table())
    frames.push_back(Json::array({frame.function, frame.library, frame.file, frame.line}));
  Json& faces = head["faces"] = Json::array();
  for (uint32_t holder = 0; holder < holders.size(); ++holder) faces.push_back(holders.face(holder));
  Json& rows = head["calls"] = Json::array();
  for (const CallRow& row : picture.call_rows)
    rows.push_back(Json::array({row.what, row.why, row.holder == kNone ? Json() : Json(row.holder)}));
  Json& causes = head["causes"] = Json::array();
  uint8_t most_cause = 0;
  uint64_t most_call = 0;
  for (const Wait& one : model.waits) {
    most_cause = std::max(most_cause, one.cause);
    if (one.call < about.calls.size()) most_call = std::max<uint64_t>(most_call, one.call);
  }
  for (unsigned cause = 0; cause <= most_cause; ++cause) causes.push_back(model.cause_name(cause));
  Json& calls = head["call_names"] = Json::array();
  for (uint64_t call = 0; call <= most_call; ++call) calls.push_back(model.call_name(call));
  return head;
}

class Base64 {
 public:
  explicit Base64(std::FILE* file) : file_(file) {}
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      kept_ = kept_ << 8 | static_cast<uint8_t>(c);
      if (++count_ == 3) flush();
    }
  }
  void end() {
    const unsigned missing = count_ == 0 ? 0 : 3 - count_;
    kept_ <<= 8 * missing;
    if (count_ != 0) flush();
    for (unsigned i = 0; i < missing; ++i) line_[at_ - 1 - i] = '=';
    fwrite(line_, 1, at_, file_);
    at_ = 0;
  }

 private:
  void flush() {
    static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // (The last letters stay, for end().)
    if (at_ + 8 > sizeof line_) {
      fwrite(line_, 1, at_, file_);
      at_ = 0;
    }
    for (int shift = 18; shift >= 0; shift -= 6) line_[at_++] = kLetters[kept_ >> shift & 63];
    kept_ = 0;
    count_ = 0;
  }
  std::FILE* file_;
  uint32_t kept_ = 0;
  unsigned count_ = 0;
  size_t at_ = 0;
  char line_[8192];
};

std::string four_bytes(size_t size) {
  std::string out;
  for (unsigned shift = 0; shift < 32; shift += 8) out += static_cast<char>(size >> shift & 0xFF);
  return out;
}

}  // namespace

std::string_view page_template() {
  return {cupool_page_begin, static_cast<size_t>(cupool_page_end - cupool_page_begin)};
}

bool write_page(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture,
                const std::vector<std::string>& sentences) {
  Columns columns;
  std::vector<std::string> libraries;
  add_all(columns, model, picture);
  add_bands(columns, model);
  add_tree(columns, "normal", tree_of_frames(holders, false));
  add_tree(columns, "inverted", tree_of_frames(holders, true));
  add_tree(columns, "library", tree_of_libraries(holders, &libraries));
  Json head = head_of(model, holders, picture, sentences, libraries);
  head["columns"] = columns.head();
  // (Names from outside may hold bytes that are no UTF-8.)
  const std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string_view page = page_template();
  const size_t mark = page.find(kMark);
  fwrite(page.data(), 1, mark, file);
  Base64 out(file);
  out.add(four_bytes(text.size()));
  out.add(text);
  out.add(columns.bytes());
  out.end();
  const std::string_view rest = page.substr(mark + kMark.size());
  fwrite(rest.data(), 1, rest.size(), file);
  return fflush(file) == 0 && ferror(file) == 0;
}

}  // namespace cupool::see
