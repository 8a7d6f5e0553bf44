// Events as the content of a block: each is its number, the time since the one before, which of its fields
// have changed, and these. A block is read without any other: it begins with all fields as 0. Fills memory of
// the caller's; not for two threads at once.
#pragma once

#include <span>

#include "trace/events.hpp"
#include "trace/format.hpp"

namespace cupool::trace {

class Encoder {
 public:
  // More than any event takes.
  static constexpr size_t kMostEvent = 16 + (kMostFields + 1) * kMostVarint + sizeof(Text);

  void begin(std::span<uint8_t> room, uint64_t time) {
    begin_ = at_ = room.data();
    end_ = room.data() + room.size();
    time_ = time;
    count_ = 0;
    numbers_ = {};
    shared_ = {};
  }
  // `words`: the event's struct. False: no room, and nothing was written.
  bool add(Event event, uint64_t time, const uint64_t* words);

  size_t size() const { return static_cast<size_t>(at_ - begin_); }
  uint32_t count() const { return count_; }

 private:
  uint8_t* begin_ = nullptr;
  uint8_t* at_ = nullptr;
  uint8_t* end_ = nullptr;
  uint64_t time_ = 0;
  uint32_t count_ = 0;
  std::array<std::array<uint64_t, kMostFields>, kEvents> numbers_{};
  std::array<uint64_t, 3> shared_{};  // the last address, stream and context of whichever event
};

// Of a field whose value is told as the difference to the last one of its type; -1: it is not.
inline constexpr int shared_place(FieldType type) {
  return type == FieldType::kAddress   ? 0
         : type == FieldType::kStream  ? 1
         : type == FieldType::kContext ? 2
                                       : -1;
}

}  // namespace cupool::trace
