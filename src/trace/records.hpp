// What the blocks of stacks and of modules hold: records, each with its number, its size and its fields, so
// that a reader skips what it does not know. Fills memory of the caller's. No state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "trace/format.hpp"

namespace cupool::trace {

enum class StackRecord : uint64_t { kText = 1, kPlace = 2, kStack = 3 };
enum class ModuleRecord : uint64_t { kModule = 1, kGone = 2 };

// A longer text is cut off, a deeper stack too.
inline constexpr size_t kMostRecordText = 4000;
inline constexpr size_t kMostFrames = 256;

// A frame of a stack in one word: a return address, or a place of an interpreter's program, by its number.
inline constexpr uint64_t kIsPlace = uint64_t{1} << 63;

class Records {
 public:
  // More than any record takes.
  static constexpr size_t kMostRecord = kMostRecordText + (kMostFrames + 8) * kMostVarint;

  void begin(std::span<uint8_t> room) {
    begin_ = at_ = room.data();
    end_ = room.data() + room.size();
    count_ = 0;
  }
  // Each: false, and nothing is written, if there is no room.
  bool text(uint64_t id, std::string_view text) {
    if (!open()) return false;
    number(id);
    string(text);
    return close(static_cast<uint64_t>(StackRecord::kText));
  }
  bool place(uint64_t id, uint64_t function, uint64_t file, uint64_t line) {
    if (!open()) return false;
    for (const uint64_t value : {id, function, file, line}) number(value);
    return close(static_cast<uint64_t>(StackRecord::kPlace));
  }
  bool stack(uint64_t id, uint64_t map, std::span<const uint64_t> frames) {
    if (!open()) return false;
    if (frames.size() > kMostFrames) frames = frames.first(kMostFrames);
    for (const uint64_t value : {id, map, uint64_t{frames.size()}}) number(value);
    uint64_t last = 0;
    for (const uint64_t frame : frames) {
      if ((frame & kIsPlace) != 0) {
        number((frame & ~kIsPlace) << 1 | 1);
        continue;
      }
      number(fold(static_cast<int64_t>(frame - last)) << 1);
      last = frame;
    }
    return close(static_cast<uint64_t>(StackRecord::kStack));
  }
  struct Module {
    uint64_t id;
    uint64_t map;    // the first one in which it lies there
    uint64_t begin;  // of what it has loaded
    uint64_t end;
    uint64_t bias;  // what is to be taken off an address to have that of its file
    std::string_view build_id;
    std::string_view path;
  };
  bool module(const Module& what) {
    if (!open()) return false;
    for (const uint64_t value : {what.id, what.map, what.begin, what.end - what.begin, what.bias})
      number(value);
    string(what.build_id);
    string(what.path);
    return close(static_cast<uint64_t>(ModuleRecord::kModule));
  }
  bool gone(uint64_t id, uint64_t map) {
    if (!open()) return false;
    number(id);
    number(map);
    return close(static_cast<uint64_t>(ModuleRecord::kGone));
  }

  size_t size() const { return static_cast<size_t>(at_ - begin_); }
  uint32_t count() const { return count_; }

 private:
  // The content is written where it would stand behind the longest head, and moved up to its own.
  static constexpr size_t kMostHead = 2 * kMostVarint;

  bool open() {
    if (static_cast<size_t>(end_ - at_) < kMostHead + kMostRecord) return false;
    content_ = at_ + kMostHead;
    return true;
  }
  bool close(uint64_t what) {
    uint8_t* const first = at_ + kMostHead;
    const auto bytes = static_cast<size_t>(content_ - first);
    at_ = put_varint(put_varint(at_, what), bytes);
    memmove(at_, first, bytes);
    at_ += bytes;
    ++count_;
    return true;
  }
  void number(uint64_t value) { content_ = put_varint(content_, value); }
  void string(std::string_view text) {
    text = text.substr(0, kMostRecordText / 2);
    number(text.size());
    memcpy(content_, text.data(), text.size());
    content_ += text.size();
  }

  uint8_t* begin_ = nullptr;
  uint8_t* at_ = nullptr;
  uint8_t* end_ = nullptr;
  uint8_t* content_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace cupool::trace
