// A pickle (protocol 2) while it is written: numbers, texts, lists and dictionaries, one after the other to a
// file. A text that comes again is told by its number.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/format.hpp"

namespace cupool::see {

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
class PickledList {
 public:
  explicit PickledList(Pickle& out) : out_(out) { out_.empty_list(); }
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

}  // namespace cupool::see
