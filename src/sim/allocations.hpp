// Every piece of memory the driver can name: device, pitched, managed, stream-ordered, mapped, imported, and
// pinned host memory, in one map by address. Sizes are to the byte as asked for.
// Guarded by the state mutex. Frees here do not wait: waiting is the entry point's business.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/model.hpp"

namespace cupool::sim {

enum class MemoryKind { kDevice, kManaged, kPooled, kMapped, kImported, kPinned, kRegistered };

// What managed memory was told. The real driver keeps it for each page; here it holds for all of an
// allocation.
struct Advice {
  bool read_mostly = false;
  bool accessed_by_device = false;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
  CUmemLocation prefetched{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
};

struct Allocation {
  CUdeviceptr base = 0;
  std::uint64_t size = 0;      // as asked for
  std::uint64_t granules = 0;  // 0: cut from a slab of its context
  MemoryKind kind = MemoryKind::kDevice;
  std::uint64_t context_id = 0;
  CUcontext context = nullptr;
  int device = 0;
  std::uint64_t buffer_id = 0;
  unsigned flags = 0;
  bool sync_memops = false;
  bool is_leaving = false;  // a stream has yet to free it; until then it is there
  Advice advice;            // kManaged
  CUmemoryPool pool = nullptr;
  CUmemGenericAllocationHandle physical = 0;  // kMapped
  std::uint64_t physical_offset = 0;          // kImported
  unsigned opens = 0;                         // kImported
  std::uint64_t import_slack = 0;             // kImported: bytes between the mapping's start and `base`
  std::uint64_t file_device = 0;              // kImported: which foreign file
  std::uint64_t file_inode = 0;
  void* host = nullptr;                                           // kPinned, kRegistered
  std::vector<CUmemAccess_flags> access;                          // kMapped: of each device
  CUmemAccess_flags host_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // kMapped

  // A mapped chunk of host memory: it belongs to no device.
  bool is_host_chunk() const { return kind == MemoryKind::kMapped && device == CU_DEVICE_CPU; }
};

enum class Touch : unsigned {
  kRead = CU_MEM_ACCESS_FLAGS_PROT_READ,
  kWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

class Allocations {
 public:
  // Memory for a context by the driver's rules; null when the device is full.
  Allocation* create(Context& current, std::uint64_t bytes, MemoryKind kind);
  // Records memory whose addresses somebody else arranged.
  Allocation* adopt(const Allocation& allocation);
  // Gives the memory back to the device and forgets it.
  void destroy(CUdeviceptr base);
  void forget(CUdeviceptr base) { by_base_.erase(base); }
  // Ends the mapping of another process's memory.
  void end_import(CUdeviceptr base);
  // All that belongs to a context that goes away.
  void destroy_context(Context& context);

  Allocation* exact(CUdeviceptr base);
  Allocation* holding(CUdeviceptr p);  // the allocation that p lies in
  bool holds(CUdeviceptr p, std::uint64_t bytes);
  // Whether the device was given access to all of these bytes of mapped memory.
  bool mapped_for(int device, CUdeviceptr p, std::uint64_t bytes, Touch touch);

  template <typename F>
  void each(F&& visit) {
    for (auto& entry : by_base_) visit(entry.second);
  }

 private:
  std::map<CUdeviceptr, Allocation> by_base_;
  std::uint64_t next_buffer_id_ = 1;
};

// Memory that the driver takes for itself: stacks and the device heap. Goes back with the process. 0: the
// device is full.
CUdeviceptr reserve_for_driver(const Context& context, std::uint64_t bytes);

}  // namespace cupool::sim
