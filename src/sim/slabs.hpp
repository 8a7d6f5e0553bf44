// A context's small allocations: up to 1 MiB they share 2 MiB slabs, cut at 512 bytes, as the real driver
// does. A slab goes back to the device with its last allocation; its bytes are not cleared, so small memory
// given again holds what was there. Guarded by the state mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace cupool::sim {

class Arena;

constexpr std::uint64_t kSmallLimit = 1ull << 20;
constexpr std::uint64_t kSmallUnit = 512;

class Slabs {
 public:
  // 0 when the device has no room for another slab.
  CUdeviceptr take(Arena& arena, std::uint64_t bytes);
  void give(Arena& arena, CUdeviceptr p, std::uint64_t bytes);
  void give_all(Arena& arena);

 private:
  struct Slab {
    std::map<std::uint64_t, std::uint64_t> free;  // offset -> bytes
    std::uint64_t used = 0;
  };
  std::map<CUdeviceptr, Slab> slabs_;
};

}  // namespace cupool::sim
