// See writer.hpp. After a failed write the rest is discarded: a report is complete or absent.
#include "report/writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/output.hpp"

namespace cupool::report {

void Writer::text(std::string_view text) {
  size_ += text.size();
  while (!text.empty()) {
    if (used_ == room_) {
      if (descriptor_ < 0) return;
      flush();
    }
    const size_t part = std::min(text.size(), room_ - used_);
    memcpy(buffer_ + used_, text.data(), part);
    used_ += part;
    text.remove_prefix(part);
  }
}

void Writer::print_packed(fmt::string_view format, fmt::format_args args) {
  char line[512];
  text({line, format_packed_into(line, format, args)});
}

void Writer::quoted(std::string_view words) {
  text("\"");
  while (!words.empty()) {
    const auto byte = static_cast<unsigned char>(words[0]);
    const size_t size = first_character(words);
    if (byte == '"' || byte == '\\') {
      print("\\{}", words[0]);
    } else if (byte < 0x20 || byte == 0x7f) {
      print("\\u{:04x}", byte);
    } else if (size == 0) {
      // A name may hold any bytes.
      text("\\ufffd");
    } else {
      text(words.substr(0, size));
    }
    words.remove_prefix(std::max<size_t>(size, 1));
  }
  text("\"");
}

void Writer::flush() {
  if (descriptor_ < 0) return;
  if (descriptor_ == STDERR_FILENO && !log::has_stderr()) error_ = EBADF;
  if (error_ == 0) error_ = write_fully(descriptor_, buffer_, used_);
  used_ = 0;
}

}  // namespace cupool::report
