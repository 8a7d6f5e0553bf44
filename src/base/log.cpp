// See log.hpp and kept_log.hpp. A line longer than the buffer is truncated, never split: processes of a job
// may share this stderr.
#include "base/log.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/after_fork.hpp"
#include "base/kept_log.hpp"
#include "base/output.hpp"

namespace cupool::log {
namespace {

constexpr char kPrefix[] = "cupool: ";
constexpr size_t kPrefixSize = sizeof kPrefix - 1;
constexpr size_t kLineSize = 1024;

constinit std::atomic<Level> level_now{Level::kNormal};
constinit std::atomic<Speaker> speaker_now{nullptr};

// What descriptor 2 was; written once.
enum class Known : uint8_t { kNot, kClosed, kOpen };
constinit std::atomic<Known> known{Known::kNot};
constinit std::atomic<uint64_t> stderr_device{0};
constinit std::atomic<uint64_t> stderr_inode{0};

constinit thread_local bool keeps_lines = false;
constinit char kept[2 * kLineSize];
constinit std::atomic<size_t> kept_size{0};
CUPOOL_AFTER_FORK(kept_lines_after_fork, [] { kept_size.store(0, std::memory_order_relaxed); });

void write_line(Speaker speaker, fmt::string_view format, fmt::format_args args) {
  const int saved_errno = errno;
  char buffer[kLineSize];
  memcpy(buffer, kPrefix, kPrefixSize);
  size_t size = kPrefixSize;
  if (speaker != nullptr) size += speaker(std::span(buffer).subspan(size));
  size += format_packed_into(std::span(buffer).subspan(size), format, args);
  flatten(buffer, size);
  buffer[size] = '\n';
  raw(buffer, size + 1);
  errno = saved_errno;
}

}  // namespace

void line_packed(fmt::string_view format, fmt::format_args args) { write_line(nullptr, format, args); }

void detail_packed(fmt::string_view format, fmt::format_args args) {
  write_line(speaker_now.load(std::memory_order_relaxed), format, args);
}

void set_speaker(Speaker speaker) { speaker_now.store(speaker, std::memory_order_relaxed); }

void set_level(Level level) { level_now.store(level, std::memory_order_relaxed); }

bool is_verbose() { return level_now.load(std::memory_order_relaxed) == Level::kVerbose; }

void remember_stderr() {
  const int saved_errno = errno;
  struct stat about;
  const bool open = fstat(STDERR_FILENO, &about) == 0;
  if (open) {
    stderr_device.store(about.st_dev, std::memory_order_relaxed);
    stderr_inode.store(about.st_ino, std::memory_order_relaxed);
  }
  known.store(open ? Known::kOpen : Known::kClosed, std::memory_order_release);
  errno = saved_errno;
}

bool has_stderr() {
  if (known.load(std::memory_order_acquire) == Known::kNot) remember_stderr();
  if (known.load(std::memory_order_acquire) == Known::kClosed) return false;
  const int saved_errno = errno;
  struct stat about;
  const bool same = fstat(STDERR_FILENO, &about) == 0 &&
                    about.st_dev == stderr_device.load(std::memory_order_relaxed) &&
                    about.st_ino == stderr_inode.load(std::memory_order_relaxed);
  errno = saved_errno;
  return same;
}

void raw(const char* text, unsigned long size) {
  if (keeps_lines) {
    const size_t used = kept_size.load(std::memory_order_relaxed);
    if (size > sizeof kept - used) return;
    memcpy(kept + used, text, size);
    kept_size.store(used + size, std::memory_order_release);
    return;
  }
  if (has_stderr()) write_fully(STDERR_FILENO, text, size);
}

void keep_lines_of_this_thread() { keeps_lines = true; }

bool has_kept_lines() { return kept_size.load(std::memory_order_acquire) != 0; }

void say_kept_lines() {
  const size_t size = kept_size.load(std::memory_order_acquire);
  if (size == 0) return;
  raw(kept, size);
  kept_size.store(0, std::memory_order_release);
}

}  // namespace cupool::log
