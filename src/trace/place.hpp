// The file of a trace: appended to by write(2) alone, opened anew by each thread that writes, for a
// descriptor of one table is none of another's; never mapped, so that a full disk or a truncated file harms
// nobody. What could not be written whole is cut off again. The caller's lock.
#pragma once

#include <limits.h>

#include <cstddef>
#include <cstdint>

namespace cupool::trace {

class Place {
 public:
  // The file exists, and is empty.
  void begin(const char* path, uint64_t device, uint64_t inode);
  // Null, or why not. `kept`: a descriptor of the calling thread's table, which stays open; negative: none
  // yet; null: it is closed again.
  const char* append(const void* data, size_t bytes, int* kept);
  const char* path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  const char* append_to(int* descriptor, const void* data, size_t bytes);
  const char* open_file(int* descriptor) const;

  char path_[PATH_MAX] = "";
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t size_ = 0;
};

}  // namespace cupool::trace
