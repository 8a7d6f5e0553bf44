// See writer.hpp. After a write that failed the rest is thrown away: a report is whole or it is not there.
#include "report/writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

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

void Writer::print(const char* format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  const int wanted = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text({line, static_cast<size_t>(std::clamp(wanted, 0, static_cast<int>(sizeof line) - 1))});
}

void Writer::quoted(std::string_view words) {
  text("\"");
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      print("\\%c", c);
    } else if (byte < 0x20 || byte >= 0x7f) {
      // A name may hold any bytes, and need not be UTF-8.
      print("\\u%04x", byte);
    } else {
      text({&c, 1});
    }
  }
  text("\"");
}

void Writer::flush() {
  if (descriptor_ < 0) return;
  const int saved_errno = errno;
  for (size_t done = 0; done < used_ && error_ == 0;) {
    const ssize_t written = write(descriptor_, buffer_ + done, used_ - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      error_ = written == 0 ? EIO : errno;
    }
  }
  used_ = 0;
  errno = saved_errno;
}

}  // namespace cupool::report
