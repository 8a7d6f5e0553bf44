// Pages of host memory for records that stay. No state, no lock.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace cupool {

// Zeroed pages, or null. Not counted: the kernel does that (RSS).
inline void* map_pages(size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
inline void unmap_pages(void* memory, size_t bytes) { munmap(memory, bytes); }

}  // namespace cupool
