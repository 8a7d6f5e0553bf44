// Virtual memory management: physical memory without addresses (chunks), addresses without memory
// (reservations), and mappings that bring the two together. A chunk lives as long as a handle or a mapping
// holds it; contexts neither own nor end any of this. None of these calls waits for work. Under the state
// mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <vector>

namespace cupool::sim {

struct Allocation;

struct PhysicalMemory {
  int device = 0;  // CU_DEVICE_CPU: host memory
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  int fd = -1;  // the memory file it lies in; a descriptor of its own for imported memory
  bool imported = false;
  bool exported = false;
  unsigned references = 1;  // the program's own
  unsigned mappings = 0;
  std::uint64_t block_id = 0;
  CUmemAllocationProp properties{};
};

struct MappedMemory {
  std::map<CUmemGenericAllocationHandle, PhysicalMemory> physical;
  std::vector<PhysicalMemory> lingering;          // let go here, still held by another process
  std::map<CUdeviceptr, std::uint64_t> reserved;  // base -> bytes
  CUmemGenericAllocationHandle next_handle = 0x6c0000000001;
  std::uint64_t next_block_id = 1ull << 32;  // apart from the numbers of other allocations
};

MappedMemory& mapped_memory();

// The chunk a handle names while the program holds it; null: it does not (any more).
PhysicalMemory* find_physical(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle adopt_physical(PhysicalMemory memory);
// Frees the memory once neither a handle nor a mapping holds it, here or in another process.
void drop_physical_if_unused(CUmemGenericAllocationHandle handle);
// Takes back chunks that other processes held on to. Called before memory is looked for or counted.
void collect_lingering_chunks();

struct Reservation {
  CUdeviceptr base = 0;
  std::uint64_t bytes = 0;  // 0: none
};
// The reservation that holds all of these bytes.
Reservation reservation_of(CUdeviceptr p, std::uint64_t bytes);

// One mapping, checked by the caller; false when the addresses cannot be used.
bool map_chunk(CUdeviceptr p, std::uint64_t bytes, CUmemGenericAllocationHandle handle);
// Ends a mapping. Work that still uses it is a hazard.
void unmap_chunk(const Allocation& mapping);
// Lets the host touch a mapping, or keeps it out.
bool set_host_access(Allocation& mapping, CUmemAccess_flags flags);

}  // namespace cupool::sim
