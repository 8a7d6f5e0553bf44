// See device_events.hpp.
#include "see/device_events.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace cupool::see {

namespace {

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

}  // namespace

// Handles that are no addresses stand where no address is, and below 2^53, which a viewer's numbers can hold.
uint64_t DeviceEvents::address_of(const Model& model, const Life& life) {
  const std::string kind = model.kind_name(life.kind);
  constexpr uint64_t kPhysical = uint64_t{1} << 51;
  constexpr uint64_t kArray = uint64_t{1} << 52;
  const uint64_t address = life.address & (kPhysical - 1);
  return kind == "physical" ? address | kPhysical : kind == "array" ? address | kArray : address;
}

// (Of imported memory the size may not be known; a block has some.)
uint64_t DeviceEvents::room_of(const Life& life) { return std::max<uint64_t>(life.given, 1); }

void DeviceEvents::make() {
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

uint64_t DeviceEvents::free_at(uint64_t time) const {
  uint64_t free = 0;
  for (const DriverSays& one : model_.driver_says) {
    if (one.device == device_ && one.time <= time) free = one.total - one.used;
  }
  return free;
}

DeviceEvents::At DeviceEvents::piece_of(uint64_t address) {
  auto at = pieces.upper_bound(address);
  if (at == pieces.begin()) return pieces.end();
  --at;
  return address - at->first < at->second.bytes ? at : pieces.end();
}

void DeviceEvents::begin(const Segment& segment) {
  // What is still there has blocks: they keep what they have.
  const auto after = pieces.lower_bound(segment.address);
  if (after != pieces.end() && after->first < segment.address + segment.bytes) return;
  if (piece_of(segment.address) != pieces.end()) return;
  pieces[segment.address] = {segment.bytes, 0, segment.is_chunk, false, false};
  entries.push_back({segment.is_chunk ? Action::kSegmentMap : Action::kSegmentAlloc, kNone, kNone,
                     segment.begin, segment.address, segment.bytes});
}

void DeviceEvents::end(const Segment& segment) {
  const auto at = pieces.find(segment.address);
  if (at == pieces.end() || at->second.is_own || at->second.bytes != segment.bytes) return;
  at->second.is_ending = true;
  drop_if_empty(at, segment.end);
}

void DeviceEvents::drop_if_empty(At at, uint64_t time) {
  if (at->second.blocks != 0 || !at->second.is_ending) return;
  entries.push_back({at->second.is_chunk ? Action::kSegmentUnmap : Action::kSegmentFree, kNone, kNone, time,
                     at->first, at->second.bytes});
  pieces.erase(at);
}

// What no device can do is left out, with its free: the viewer stops at a block over another one, or over the
// end of its segment.
bool DeviceEvents::is_possible(uint64_t address, uint64_t given) {
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
void DeviceEvents::for_each_piece(uint64_t address, uint64_t bytes, F&& f) {
  for (auto at = piece_of(address); at != pieces.end() && at->first < address + bytes;) {
    const auto next = std::next(at);
    f(at);
    at = next;
  }
}

void DeviceEvents::allocate(uint32_t number, uint32_t phase) {
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

void DeviceEvents::free(uint32_t number, uint32_t phase) {
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

}  // namespace cupool::see
