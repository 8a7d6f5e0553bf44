// See log.hpp. A line longer than the buffer is cut, never split: two processes of a job may share this
// stderr.
#include "base/log.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace cupool::log {
namespace {

constexpr char kPrefix[] = "cupool: ";
constexpr size_t kPrefixSize = sizeof kPrefix - 1;
constexpr size_t kLineSize = 1024;

constinit std::atomic<Level> level_now{Level::kNormal};

void write_line(const char* format, va_list args) {
  const int saved_errno = errno;
  char buffer[kLineSize];
  memcpy(buffer, kPrefix, kPrefixSize);
  const int wanted = vsnprintf(buffer + kPrefixSize, kLineSize - kPrefixSize, format, args);
  size_t size = kPrefixSize + (wanted > 0 ? static_cast<size_t>(wanted) : 0);
  if (size > kLineSize - 1) size = kLineSize - 1;
  flatten(buffer, size);
  buffer[size] = '\n';
  raw(buffer, size + 1);
  errno = saved_errno;
}

}  // namespace

void set_level(Level level) { level_now.store(level, std::memory_order_relaxed); }

void flatten(char* text, unsigned long size) {
  for (unsigned long i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) text[i] = '?';
  }
}

void raw(const char* text, unsigned long size) {
  const int saved_errno = errno;
  while (size > 0) {
    const ssize_t written = write(STDERR_FILENO, text, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    text += written;
    size -= static_cast<size_t>(written);
  }
  errno = saved_errno;
}

void line(const char* format, ...) {
  va_list args;
  va_start(args, format);
  write_line(format, args);
  va_end(args);
}

void detail(const char* format, ...) {
  if (level_now.load(std::memory_order_relaxed) != Level::kVerbose) return;
  va_list args;
  va_start(args, format);
  write_line(format, args);
  va_end(args);
}

}  // namespace cupool::log
