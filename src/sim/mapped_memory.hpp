// Virtual memory management: physical memory without addresses, addresses without memory, and mappings that
// bring the two together. None of these calls waits for work. Under the state mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace cupool::sim {

struct PhysicalMemory {
  int device = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  int fd = -1;  // the memory file it lies in; a foreign one for imported memory
  bool imported = false;
  unsigned references = 1;  // the program's own
  unsigned mappings = 0;
  CUmemAllocationProp properties{};
};

struct MappedMemory {
  std::map<CUmemGenericAllocationHandle, PhysicalMemory> physical;
  std::map<CUdeviceptr, std::uint64_t> reserved;  // base -> bytes
  CUmemGenericAllocationHandle next_handle = 0x6c0000000001;
};

MappedMemory& mapped_memory();
// Frees the memory once neither a handle nor a mapping holds it.
void drop_physical_if_unused(CUmemGenericAllocationHandle handle);

}  // namespace cupool::sim
