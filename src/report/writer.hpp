// Buffers text for a file descriptor, so that a report takes as few writes as possible: the ranks of a job
// may share one stderr. Allocates nothing and takes no lock, so it may run at exit, in a signal handler, and
// when the host is out of memory. Not for two threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/format.hpp"

namespace cupool::report {

class Writer {
 public:
  // A negative descriptor: nothing is written, and `buffer` keeps the beginning of what would have been.
  Writer(int descriptor, char* buffer, size_t room) : descriptor_(descriptor), buffer_(buffer), room_(room) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void text(std::string_view text);
  template <typename... Args>
  [[gnu::cold, gnu::noinline]] void print(Format<Args...> format, const Args&... args) {
    print_packed(format, packed(Argument<Args>(args)...));
  }
  // In double quotes, escaped as JSON requires.
  void quoted(std::string_view text);

  // Writes what is left.
  void flush();
  // The errno of the first write that failed, or 0: everything is there.
  int error() const { return error_; }
  // The length of everything written so far, truncated or not.
  size_t size() const { return size_; }

 private:
  void print_packed(fmt::string_view format, fmt::format_args args);

  int descriptor_;
  char* buffer_;
  size_t room_;
  size_t used_ = 0;
  size_t size_ = 0;
  int error_ = 0;
};

}  // namespace cupool::report
