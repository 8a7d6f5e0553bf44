// Messages of protocol buffers as bytes: fields one after the other. Text in them is made valid. No state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/format.hpp"
#include "trace/format.hpp"

namespace cupool::see {

class Message {
 public:
  Message& number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Message& bytes(uint32_t field, std::string_view value) {
    varint(uint64_t{field} << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& text(uint32_t field, std::string value) {
    flatten(value.data(), value.size());
    return bytes(field, value);
  }
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.bytes_); }
  // Numbers of a repeated field, packed.
  template <typename Rows>
  Message& packed(uint32_t field, const Rows& rows) {
    Message all;
    for (const auto one : rows) all.varint(static_cast<uint64_t>(one));
    return message(field, all);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    uint8_t out[trace::kMostVarint];
    bytes_.append(reinterpret_cast<const char*>(out),
                  static_cast<size_t>(trace::put_varint(out, value) - out));
  }
  std::string bytes_;
};

}  // namespace cupool::see
