// What happened on one device as PyTorch's allocator would have told it: segments and blocks that come and
// go, and those that are there at the end. Every block lies in a segment: memory that no segment of the pool
// holds gets one of its own.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "see/model.hpp"

namespace cupool::see {

class DeviceEvents {
 public:
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
  static constexpr const char* kNames[] = {
      "alloc",        "free_requested", "free_completed", "segment_alloc",
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

  DeviceEvents(const Model& model, uint64_t device) : model_(model), device_(device) {}
  void make();

  std::vector<Entry> entries;
  std::map<uint64_t, Piece> pieces;     // there at the end, by address
  std::map<uint64_t, uint32_t> blocks;  // live at the end, by address

  // Where a block lies, and how large it is there.
  static uint64_t address_of(const Model& model, const Life& life);
  static uint64_t room_of(const Life& life);

 private:
  using At = std::map<uint64_t, Piece>::iterator;
  uint64_t free_at(uint64_t time) const;
  At piece_of(uint64_t address);
  void begin(const Segment& segment);
  void end(const Segment& segment);
  void drop_if_empty(At at, uint64_t time);
  bool is_possible(uint64_t address, uint64_t given);
  template <typename F>
  void for_each_piece(uint64_t address, uint64_t bytes, F&& f);
  void allocate(uint32_t number, uint32_t phase);
  void free(uint32_t number, uint32_t phase);

  const Model& model_;
  uint64_t device_;
};

}  // namespace cupool::see
