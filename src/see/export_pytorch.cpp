// A trace as PyTorch's memory snapshot: a pickle (protocol 2) with `segments` and `device_traces`, as
// torch.cuda.memory._snapshot() has them. PyTorch's viewer takes the events away from the last state, from
// the latest to the first, and needs every block to lie in a segment: memory that no segment of the pool
// holds gets a segment of its own. Host memory is no device's and is left out.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/format.hpp"
#include "see/exports.hpp"

namespace cupool::see {
namespace {

class Pickle {
 public:
  explicit Pickle(std::FILE* file) : file_(file) { put("\x80\x02"); }
  void end() { put("."); }

  void number(uint64_t value) {
    if (value < 1 << 8) {
      put("K");
      bytes(value, 1);
    } else if (value < 1 << 16) {
      put("M");
      bytes(value, 2);
    } else if (value < uint64_t{1} << 31) {
      put("J");
      bytes(value, 4);
    } else {
      // (A ninth byte keeps it from being negative.)
      const unsigned size = value >> 63 != 0 ? 9 : 8;
      put("\x8a");
      bytes(size, 1);
      bytes(value, 8);
      if (size == 9) bytes(0, 1);
    }
  }
  void truth(bool value) { put(value ? "\x88" : "\x89"); }
  // Each text once.
  void text(const std::string& value) {
    const auto found = texts_.find(value);
    if (found != texts_.end()) return get(found->second);
    std::string safe = value;
    flatten(safe.data(), safe.size());
    put("X");
    bytes(safe.size(), 4);
    fwrite(safe.data(), 1, safe.size(), file_);
    texts_[value] = keep();
  }
  void empty_list() { put("]"); }
  void empty_dict() { put("}"); }
  void two_zeros() { put("K\x00K\x00\x86", 5); }
  void mark() { put("("); }
  void append_all() { put("e"); }
  void set_all() { put("u"); }
  // What stands on top is remembered under a number.
  uint32_t keep() {
    put("r");
    bytes(kept_, 4);
    return kept_++;
  }
  void get(uint32_t number) {
    put("j");
    bytes(number, 4);
  }
  void key(const char* name) { text(name); }
  void pair(const char* name, uint64_t value) {
    key(name);
    number(value);
  }
  void pair(const char* name, const std::string& value) {
    key(name);
    text(value);
  }

 private:
  void put(std::string_view what) { fwrite(what.data(), 1, what.size(), file_); }
  void put(const char* what, size_t size) { fwrite(what, 1, size, file_); }
  void bytes(uint64_t value, unsigned count) {
    for (unsigned i = 0; i < count; ++i) putc(static_cast<int>(value >> (8 * i) & 0xFF), file_);
  }
  std::FILE* file_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t kept_ = 0;
};

// A list of any length, a thousand at a time: the viewer passes that many as arguments of a call.
class List {
 public:
  explicit List(Pickle& out) : out_(out) { out_.empty_list(); }
  void begin_item() {
    if (count_ % 1000 == 0) {
      if (count_ != 0) out_.append_all();
      out_.mark();
    }
    ++count_;
  }
  void end() {
    if (count_ != 0) out_.append_all();
  }

 private:
  Pickle& out_;
  size_t count_ = 0;
};

enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOutOfMemory,
};
constexpr const char* kActions[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                    "segment_free", "segment_map",    "segment_unmap",  "oom"};

struct Entry {
  Action action = Action::kAlloc;
  uint32_t life = kNone;
  uint32_t phase = kNone;
  uint64_t time = 0;
  uint64_t address = 0;  // of out of memory: what is free on the device
  uint64_t size = 0;
};

// A segment while it is there.
struct Piece {
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  bool is_chunk = false;
  bool is_own = false;     // of one block, and goes with it
  bool is_ending = false;  // with its last block
};

// Handles that are no addresses stand where no address is, and below 2^53, which a viewer's numbers can hold.
uint64_t address_of(const Model& model, const Life& life) {
  const std::string kind = model.kind_name(life.kind);
  constexpr uint64_t kPhysical = uint64_t{1} << 51;
  constexpr uint64_t kArray = uint64_t{1} << 52;
  const uint64_t address = life.address & (kPhysical - 1);
  return kind == "physical" ? address | kPhysical : kind == "array" ? address | kArray : address;
}

// (Of imported memory the size may not be known; a block has some.)
uint64_t room_of(const Life& life) { return std::max<uint64_t>(life.given, 1); }

// The innermost phase of a thread, asked in the order of time.
class Phases {
 public:
  explicit Phases(const Model& model) : model_(model) {
    for (uint32_t i = 0; i < model.phases.size(); ++i) threads_[model.phases[i].thread].all.push_back(i);
  }
  uint32_t at(uint16_t thread, uint64_t time) {
    const auto found = threads_.find(thread);
    if (found == threads_.end()) return kNone;
    Thread& here = found->second;
    while (here.next < here.all.size() && model_.phases[here.all[here.next]].begin <= time)
      here.open.push_back(here.all[here.next++]);
    while (!here.open.empty() && model_.phases[here.open.back()].end <= time) here.open.pop_back();
    return here.open.empty() ? kNone : model_.phases[here.open.back()].name;
  }

 private:
  struct Thread {
    std::vector<uint32_t> all;
    std::vector<uint32_t> open;
    size_t next = 0;
  };
  const Model& model_;
  std::unordered_map<uint16_t, Thread> threads_;
};

// All events of one device, and its last state.
class Device {
 public:
  Device(const Model& model, uint64_t device) : model_(model), device_(device) {}

  void make() {
    Phases phases(model_);
    struct Edge {
      uint64_t time;
      uint8_t rank;  // at the same time: frees, then ends of segments, their begins, allocations
      uint32_t number;
    };
    std::vector<Edge> edges;
    for (uint32_t i = 0; i < model_.segments.size(); ++i) {
      const Segment& one = model_.segments[i];
      if (one.device != device_) continue;
      edges.push_back({one.begin, 2, i});
      if (one.end != kNever) edges.push_back({one.end, 1, i});
    }
    for (uint32_t i = 0; i < model_.failures.size(); ++i) {
      if (model_.failures[i].device == device_ && !model_.failures[i].is_final)
        edges.push_back({model_.failures[i].time, 4, i});
    }
    std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
      return a.time != b.time ? a.time < b.time : a.rank < b.rank;
    });
    size_t next = 0;
    const auto until = [&](uint64_t time, uint8_t rank) {
      for (; next < edges.size(); ++next) {
        const Edge& edge = edges[next];
        if (edge.time > time || (edge.time == time && edge.rank > rank)) return;
        if (edge.rank == 4) {
          const Failure& one = model_.failures[edge.number];
          entries.push_back({Action::kOutOfMemory, kNone, phases.at(one.thread, one.time), one.time,
                             free_at(one.time), one.asked});
        } else if (edge.rank == 2) {
          begin(model_.segments[edge.number]);
        } else {
          end(model_.segments[edge.number]);
        }
      }
    };
    for (const uint32_t number : model_.order) {
      const uint32_t at = number & ~kIsFree;
      const Life& life = model_.lives[at];
      if (life.device != device_ || model_.is_hosts(life)) continue;
      if ((number & kIsFree) != 0) {
        until(life.end, 0);
        free(at, phases.at(life.free_thread, life.end));
      } else {
        until(life.begin, 3);
        allocate(at, phases.at(life.thread, life.begin));
      }
    }
    until(kNever, 4);
  }

  std::vector<Entry> entries;
  std::map<uint64_t, Piece> pieces;
  std::map<uint64_t, uint32_t> blocks;  // live at the end, by address

 private:
  uint64_t free_at(uint64_t time) const {
    uint64_t free = 0;
    for (const DriverSays& one : model_.driver_says) {
      if (one.device == device_ && one.time <= time) free = one.total - one.used;
    }
    return free;
  }
  std::map<uint64_t, Piece>::iterator piece_of(uint64_t address) {
    auto at = pieces.upper_bound(address);
    if (at == pieces.begin()) return pieces.end();
    --at;
    return address - at->first < at->second.bytes ? at : pieces.end();
  }
  void begin(const Segment& segment) {
    // What is still there has blocks: they keep what they have.
    const auto after = pieces.lower_bound(segment.address);
    if (after != pieces.end() && after->first < segment.address + segment.bytes) return;
    if (piece_of(segment.address) != pieces.end()) return;
    pieces[segment.address] = {segment.bytes, 0, segment.is_chunk, false, false};
    entries.push_back({segment.is_chunk ? Action::kSegmentMap : Action::kSegmentAlloc, kNone, kNone,
                       segment.begin, segment.address, segment.bytes});
  }
  void end(const Segment& segment) {
    const auto at = pieces.find(segment.address);
    if (at == pieces.end() || at->second.is_own || at->second.bytes != segment.bytes) return;
    at->second.is_ending = true;
    drop_if_empty(at, segment.end);
  }
  void drop_if_empty(std::map<uint64_t, Piece>::iterator at, uint64_t time) {
    if (at->second.blocks != 0 || !at->second.is_ending) return;
    entries.push_back({at->second.is_chunk ? Action::kSegmentUnmap : Action::kSegmentFree, kNone, kNone, time,
                       at->first, at->second.bytes});
    pieces.erase(at);
  }
  // What no device can do is left out, with its free: the viewer stops at a block over another one, or over
  // the end of its segment.
  bool is_possible(uint64_t address, uint64_t given) {
    const auto after = blocks.lower_bound(address);
    if (after != blocks.end() && after->first < address + given) return false;
    if (after != blocks.begin()) {
      const auto before = std::prev(after);
      if (before->first + room_of(model_.lives[before->second]) > address) return false;
    }
    const auto first = piece_of(address);
    if (first == pieces.end()) {
      const auto next = pieces.lower_bound(address);
      return next == pieces.end() || next->first >= address + given;
    }
    // It may go on in chunks that lie behind one another.
    uint64_t end = first->first + first->second.bytes;
    for (auto at = std::next(first); end < address + given; ++at) {
      if (!first->second.is_chunk || at == pieces.end() || !at->second.is_chunk || at->first != end)
        return false;
      end += at->second.bytes;
    }
    return true;
  }
  template <typename F>
  void for_each_piece(uint64_t address, uint64_t bytes, F&& f) {
    for (auto at = piece_of(address); at != pieces.end() && at->first < address + bytes;) {
      const auto next = std::next(at);
      f(at);
      at = next;
    }
  }
  void allocate(uint32_t number, uint32_t phase) {
    const Life& life = model_.lives[number];
    const uint64_t address = address_of(model_, life);
    const uint64_t given = room_of(life);
    if (!is_possible(address, given)) return;
    if (piece_of(address) == pieces.end()) {
      pieces[address] = {given, 0, false, true, true};
      entries.push_back({Action::kSegmentAlloc, number, phase, life.begin, address, given});
    }
    for_each_piece(address, given, [](auto at) { ++at->second.blocks; });
    blocks[address] = number;
    entries.push_back({Action::kAlloc, number, phase, life.begin, address, life.asked});
  }
  void free(uint32_t number, uint32_t phase) {
    const Life& life = model_.lives[number];
    const uint64_t address = address_of(model_, life);
    const auto found = blocks.find(address);
    if (found == blocks.end() || found->second != number) return;
    blocks.erase(found);
    entries.push_back({Action::kFreeRequested, number, phase, life.end, address, life.asked});
    entries.push_back({Action::kFreeCompleted, number, phase, life.end, address, life.asked});
    for_each_piece(address, room_of(life), [&](auto at) {
      --at->second.blocks;
      drop_if_empty(at, life.end);
    });
  }

  const Model& model_;
  uint64_t device_;
};

class Snapshot {
 public:
  Snapshot(std::FILE* file, const Model& model, const Holders& holders)
      : out_(file), model_(model), holders_(holders), kept_frames_(holders.size(), kNone) {}

  void write(uint64_t last) {
    std::vector<Device> devices;
    for (uint64_t i = 0; i < model_.devices; ++i) {
      devices.emplace_back(model_, i);
      devices.back().make();
    }
    out_.empty_dict();
    out_.mark();
    out_.key("segments");
    List segments(out_);
    for (uint64_t i = 0; i < model_.devices; ++i) write_segments(segments, devices[i], i);
    segments.end();
    out_.key("device_traces");
    List traces(out_);
    for (const Device& device : devices) {
      traces.begin_item();
      write_trace(device, last);
    }
    traces.end();
    out_.key("allocator_settings");
    out_.empty_dict();
    out_.key("external_annotations");
    out_.empty_list();
    out_.set_all();
    out_.end();
  }

 private:
  void frames(uint32_t holder) {
    if (kept_frames_[holder] != kNone) return out_.get(kept_frames_[holder]);
    List list(out_);
    const std::vector<uint32_t>& all = holders_.frames(holder);
    for (auto at = all.rbegin(); at != all.rend(); ++at) {
      const Frame& frame = holders_.table()[*at];
      list.begin_item();
      out_.empty_dict();
      out_.mark();
      out_.pair("name", frame.function);
      out_.pair("filename", frame.file.empty() ? frame.library : frame.file);
      out_.pair("line", frame.line);
      out_.set_all();
    }
    list.end();
    kept_frames_[holder] = out_.keep();
  }
  void no_frames() { out_.empty_list(); }

  uint64_t micro(uint64_t time) const {
    // As PyTorch has it: of the wall's clock.
    const tools::TraceAbout& about = model_.about();
    return (about.wall + time - about.monotonic) / 1000;
  }

  void write_trace(const Device& device, uint64_t last) {
    List list(out_);
    const size_t skipped = last == 0 || device.entries.size() <= last ? 0 : device.entries.size() - last;
    for (size_t i = skipped; i < device.entries.size(); ++i) {
      const Entry& one = device.entries[i];
      list.begin_item();
      out_.empty_dict();
      out_.mark();
      out_.pair("action", kActions[static_cast<size_t>(one.action)]);
      out_.pair(one.action == Action::kOutOfMemory ? "device_free" : "addr", one.address);
      out_.pair("size", one.size);
      out_.pair("time_us", micro(one.time));
      const bool is_life = one.life != kNone;
      out_.pair("stream", is_life ? model_.streams[model_.lives[one.life].stream] : 0);
      out_.key("frames");
      if (is_life && (one.action == Action::kAlloc || one.action == Action::kSegmentAlloc)) {
        frames(holders_.of(model_.lives[one.life]));
      } else if (is_life) {
        const Life& life = model_.lives[one.life];
        if (life.free_stack == 0) {
          no_frames();
        } else {
          frames(holders_.of(life.free_stack, life.free_call));
        }
      } else {
        no_frames();
      }
      // (The viewer colours by it, and fails if there is none of the name that it has for what has none.)
      out_.pair("category", is_life ? model_.kind_name(model_.lives[one.life].kind) : std::string("unknown"));
      if (one.phase != kNone) out_.pair("user_metadata", model_.phase_names[one.phase]);
      out_.set_all();
    }
    list.begin_item();
    out_.empty_dict();
    out_.mark();
    out_.pair("action", "snapshot");
    for (const char* const name : {"addr", "size", "stream"}) out_.pair(name, uint64_t{0});
    out_.pair("time_us", micro(model_.last));
    out_.pair("category", "unknown");
    out_.set_all();
    list.end();
  }

  void write_segments(List& list, const Device& device, uint64_t number) {
    auto at = device.pieces.begin();
    while (at != device.pieces.end()) {
      const uint64_t begin = at->first;
      uint64_t end = begin + at->second.bytes;
      const bool is_chunk = at->second.is_chunk;
      // Chunks that lie side by side are one segment, as the viewer puts them together.
      for (++at; at != device.pieces.end() && is_chunk && at->second.is_chunk && at->first == end; ++at)
        end += at->second.bytes;
      list.begin_item();
      write_segment(device, number, begin, end, is_chunk);
    }
  }

  void write_segment(const Device& device, uint64_t number, uint64_t begin, uint64_t end, bool is_chunk) {
    uint64_t given = 0;
    uint64_t asked = 0;
    std::vector<uint32_t> lives;
    uint64_t until = begin;
    for (auto block = device.blocks.lower_bound(begin); block != device.blocks.end() && block->first < end;
         ++block) {
      const Life& life = model_.lives[block->second];
      if (block->first < until || block->first + room_of(life) > end) continue;
      until = block->first + room_of(life);
      given += room_of(life);
      asked += life.asked;
      lives.push_back(block->second);
    }
    out_.empty_dict();
    out_.mark();
    out_.pair("device", number);
    out_.pair("address", begin);
    out_.pair("total_size", end - begin);
    out_.pair("allocated_size", given);
    out_.pair("active_size", given);
    out_.pair("requested_size", asked);
    out_.pair("stream", uint64_t{0});
    out_.pair("segment_type", "large");
    out_.key("segment_pool_id");
    out_.two_zeros();
    out_.key("is_expandable");
    out_.truth(is_chunk);
    out_.key("frames");
    no_frames();
    out_.key("blocks");
    List blocks(out_);
    uint64_t at = begin;
    const auto hole = [&](uint64_t upto) {
      if (upto == at) return;
      write_block(blocks, at, upto - at, 0, "inactive", kNone);
      at = upto;
    };
    for (const uint32_t one : lives) {
      const Life& life = model_.lives[one];
      hole(address_of(model_, life));
      write_block(blocks, at, room_of(life), life.asked, "active_allocated", holders_.of(life));
      at += room_of(life);
    }
    hole(end);
    blocks.end();
    out_.set_all();
  }

  void write_block(List& list, uint64_t address, uint64_t size, uint64_t asked, const char* state,
                   uint32_t holder) {
    list.begin_item();
    out_.empty_dict();
    out_.mark();
    out_.pair("address", address);
    out_.pair("size", size);
    out_.pair("requested_size", asked);
    out_.pair("state", state);
    out_.key("frames");
    if (holder == kNone) {
      no_frames();
    } else {
      frames(holder);
    }
    out_.set_all();
  }

  Pickle out_;
  const Model& model_;
  const Holders& holders_;
  std::vector<uint32_t> kept_frames_;
};

}  // namespace

void write_pytorch(std::FILE* file, const Model& model, const Holders& holders, uint64_t last) {
  Snapshot(file, model, holders).write(last);
}

}  // namespace cupool::see
