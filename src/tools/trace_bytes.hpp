// The content of a block of a trace, number by number. Reads what lies between two places and nothing else;
// after a fault it gives zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cupool::tools {

class TraceBytes {
 public:
  TraceBytes(const uint8_t* begin, size_t size) : at_(begin), end_(begin + size) {}
  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const uint8_t byte = *at_++;
      // (The tenth byte has one bit.)
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail();
    return 0;
  }
  std::string text(size_t most) {
    const uint64_t size = number();
    if (size > most || size > left()) {
      fail();
      return {};
    }
    std::string out(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return out;
  }
  // The next so many bytes, apart.
  TraceBytes part(uint64_t size) {
    if (size > left()) {
      fail();
      size = 0;
    }
    const uint8_t* const begin = at_;
    at_ += size;
    return {begin, size};
  }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  bool is_good() const { return is_good_; }
  bool is_over() const { return at_ == end_; }

 private:
  void fail() {
    is_good_ = false;
    at_ = end_;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool is_good_ = true;
};

}  // namespace cupool::tools
