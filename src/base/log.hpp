// One line to stderr, by a single write(2), with the prefix "cupool: ". Owns the log level and the identity
// of stderr, takes no lock and allocates nothing: it may run inside an allocation, under any lock, in a fork
// child, in a signal handler. It must never change errno, which the program reads after us.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/format.hpp"

namespace cupool::log {

enum class Level : uint8_t { kQuiet, kNormal, kVerbose };

void set_level(Level level);
bool is_verbose();

// Details begin with what this writes: which process speaks. Returns the length. Null: nothing.
using Speaker = size_t (*)(std::span<char> out);
void set_speaker(Speaker speaker);

void line_packed(fmt::string_view format, fmt::format_args args);
void detail_packed(fmt::string_view format, fmt::format_args args);

// Printed at every level: CUPOOL_LOG=quiet silences the summary, never a warning.
template <typename... Args>
[[gnu::cold, gnu::noinline]] void line(Format<Args...> format, const Args&... args) {
  line_packed(format, packed(Argument<Args>(args)...));
}

// Printed only with CUPOOL_LOG=verbose.
template <typename... Args>
[[gnu::cold, gnu::noinline]] void detail(Format<Args...> format, const Args&... args) {
  if (is_verbose()) detail_packed(format, packed(Argument<Args>(args)...));
}

// Writes the text unchanged, without prefix, at every level: for output that the user asked for.
void raw(const char* text, unsigned long size);

// Notes which file descriptor 2 is now, by device and inode. A program may close it and reopen the number as
// a file of its own: nothing is written to descriptor 2 once it is another file. Without this call the first
// line does the same.
void remember_stderr();
// Whether descriptor 2 still is the stderr that was noted.
bool has_stderr();

// A message that is logged only once: `if (once.first()) log::line(...)`.
class Once {
 public:
  bool first() {
    return !said_.load(std::memory_order_relaxed) && !said_.exchange(true, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> said_{false};
};

}  // namespace cupool::log
