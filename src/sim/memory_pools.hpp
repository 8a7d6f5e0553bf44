// Stream-ordered memory (cuMemAllocAsync and friends). A pool keeps what was freed with the clock of its
// free; handing it out again orders the new allocation after that clock, so reuse is never a hazard for a
// program that orders its work after the allocation. Released to the device only when the free is done. Under
// the state mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/allocations.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {

struct CachedMemory {
  CUdeviceptr base = 0;
  std::uint64_t granules = 0;
  VectorClock after;
};

struct MemPool {
  CUmemoryPool handle = nullptr;
  int device = 0;
  bool is_default = false;
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  std::uint64_t release_threshold = 0;
  int follow_event_dependencies = 1;
  int opportunistic = 1;
  int internal_dependencies = 1;
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  std::uint64_t reserved = 0;
  std::uint64_t reserved_high = 0;
  std::vector<CachedMemory> cached;
};

std::shared_ptr<MemPool> make_pool(int device);
std::shared_ptr<MemPool> current_pool(int device);
std::shared_ptr<MemPool> default_pool(int device);

CUresult pool_allocate(MemPool& pool, const StreamPtr& stream, std::uint64_t bytes, CUdeviceptr* out);
CUresult pool_free(const StreamPtr& stream, CUdeviceptr p);
// Pooled memory freed by a call that waited: ready for anyone ordered after `after`.
void return_to_pool(const Allocation& allocation, const VectorClock& after);
// Gives finished memory back to the device until at most `keep` bytes stay reserved.
void trim_pool(MemPool& pool, std::uint64_t keep);
// Some thread has waited: pools shrink to their thresholds.
void trim_pools_after_wait();

}  // namespace cupool::sim
