// CUDA arrays: opaque device memory with a shape. They take capacity in 2 MiB steps like everything else;
// their bytes are kept row after row. Under the state mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace cupool::sim {

struct SimArray {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  int device = 0;
  std::uint64_t context_id = 0;
  std::uint64_t element = 1;  // bytes of one element, all channels
  std::uint64_t row = 0;      // bytes of one row
  std::uint64_t rows = 1;     // rows of one slice
  std::uint64_t slices = 1;
  std::uint64_t offset = UINT64_MAX;  // in the device's memory file
  std::uint64_t granules = 0;
  std::vector<CUarray> levels;  // of a mipmapped array

  std::uint64_t bytes() const { return row * rows * slices; }
};

// Null with `error` set when the shape is wrong or the device is full.
std::shared_ptr<SimArray> make_array(const CUDA_ARRAY3D_DESCRIPTOR& shape, int device,
                                     std::uint64_t context_id, CUresult& error);
void release_array(SimArray& array);
std::uint8_t* array_bytes(const SimArray& array);

}  // namespace cupool::sim
