// The seam to virtual memory management over the real table. Every call under the re-entry guard, so that the
// program's own mappings and ours do not meet. No lock; keeps what a device was found to support.
#pragma once

#include <array>
#include <atomic>

#include "cuda/real.hpp"
#include "driver/mapping.hpp"
#include "stats/device.hpp"

namespace cupool::cuda {

// Plain memory of a device.
CUmemAllocationProp properties_of(int device);

class CudaMapping final : public driver::Mapping {
 public:
  bool can_map(int device) override;
  driver::Status reserve(uint64_t bytes, driver::Address* out) override;
  driver::Status unreserve(driver::Address start, uint64_t bytes) override;
  driver::Status create(int device, driver::Backing backing, uint64_t bytes, driver::Chunk* out) override;
  driver::Status release(driver::Chunk chunk) override;
  driver::Status map(driver::Address at, uint64_t bytes, driver::Chunk chunk) override;
  driver::Status unmap(driver::Address start, uint64_t bytes) override;
  driver::Status allow(driver::Address start, uint64_t bytes, const int* devices, size_t count,
                       Access access) override;
  driver::Status retain(driver::Address address, driver::Chunk* out) override;
  driver::Status export_chunk(driver::Chunk chunk, int* descriptor) override;
  driver::Status import_chunk(int descriptor, driver::Chunk* out) override;

 private:
  // What chunks of a device are created with.
  struct Support {
    std::atomic<bool> direct_access{false};
    std::atomic<bool> no_export{false};
    std::atomic<bool> no_inflate{false};
    std::atomic<int> host_node{0};
  };
  std::array<Support, stats::kMostDevices> support_{};
};

}  // namespace cupool::cuda
