// The moments that a page shows, and what happened between one and the next. There are at most so many: of
// each stretch of events the moment of the most and that of the least memory, so that everything at a moment
// is exact and no peak is missed; of a short trace each event is one. A moment is a place in Model::order:
// what holds after that event. In memory only; a pure function of a model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "see/holders.hpp"
#include "see/model.hpp"

namespace cupool::see {

// Who holds memory of one kind on one device: what a cell counts.
struct Group {
  uint32_t holder = 0;
  uint8_t kind = 0;
  uint8_t device = 0;
  bool operator==(const Group&) const = default;
};

// What a group did between the moment before and this one.
struct Cell {
  uint32_t moment = 0;
  uint32_t group = 0;
  int64_t bytes = 0;   // more held, or less
  int64_t blocks = 0;  // likewise
  uint64_t calls = 0;  // allocations
  uint64_t asked = 0;  // bytes that they were given
  uint64_t brief = 0;  // of them, those that ended before so many other allocations
};
// A row of the table of calls, and how often it happened between the moment before and this one.
struct CallRow {
  std::string what;
  std::string why;
  uint32_t holder = kNone;
};
struct CallCell {
  uint32_t moment = 0;
  uint32_t row = 0;
  uint64_t count = 0;
  uint64_t ns = 0;
  uint64_t most_ns = 0;
};
// How many allocations, and of how many bytes, fell into a bucket: powers of two.
struct HistogramCell {
  uint32_t moment = 0;
  uint32_t bucket = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
};
// A block on the map, from one of the moments of the map to before another.
struct MapBlock {
  uint32_t region = 0;
  uint32_t group = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t begin = 0;  // its time, for its age
};
struct Region {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint8_t device = 0;
  bool is_known = true;  // a segment that the trace tells; else where blocks lie that are in none
  uint32_t from = 0;     // moments of the map
  uint32_t to = 0;
};

struct Series {
  uint8_t device = 0;
  uint8_t kind = 0;
  std::vector<uint64_t> bytes;  // at each moment
};

inline constexpr uint32_t kStillHeld = 64;  // the bucket of lives that did not end

struct Picture {
  std::vector<uint64_t> times;   // of the moments
  std::vector<uint64_t> events;  // how many allocations and frees until then
  std::vector<Series> live;
  std::vector<std::vector<uint64_t>> reserved;  // what the pool holds; of each device
  std::vector<std::vector<uint64_t>> used;      // what the driver says is in use; of each device
  std::vector<uint64_t> totals;                 // of each device; 0: not known
  std::vector<Group> groups;
  std::vector<Cell> cells;
  std::vector<CallRow> call_rows;
  std::vector<CallCell> call_cells;
  std::vector<HistogramCell> sizes;
  std::vector<HistogramCell> lifetimes;  // in nanoseconds
  std::vector<uint32_t> map_moments;
  std::vector<Region> regions;
  std::vector<MapBlock> blocks;
  uint64_t least_block = 0;     // smaller ones are not on the map
  std::vector<uint32_t> peaks;  // of each device: the moment of the most live memory
  uint32_t peak = 0;            // of all devices together
  uint64_t brief_calls = 0;     // what counts as brief
};

struct Limits {
  size_t moments = 16000;
  size_t cells = 450'000;
  size_t blocks = 200'000;
  size_t histogram_cells = 250'000;
  size_t call_cells = 100'000;
  uint64_t brief_calls = 10;
};

Picture make_picture(const Model& model, const Holders& holders, const Limits& limits,
                     const std::function<void()>& progress);

}  // namespace cupool::see
