// Shapes, sizes and memory of arrays. Under the state mutex.
#include "sim/arrays.hpp"

#include <algorithm>

#include "sim/state.hpp"

namespace cupool::sim {
namespace {

std::uint64_t format_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

std::shared_ptr<SimArray> make_array(const CUDA_ARRAY3D_DESCRIPTOR& shape, int device,
                                     std::uint64_t context_id, CUresult& error) {
  error = CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t format = format_bytes(shape.Format);
  const unsigned channels = shape.NumChannels;
  if (format == 0 || shape.Width == 0 || (channels != 1 && channels != 2 && channels != 4)) return nullptr;
  auto array = std::make_shared<SimArray>();
  array->shape = shape;
  array->device = device;
  array->context_id = context_id;
  array->element = format * channels;
  array->row = shape.Width * array->element;
  array->rows = std::max<std::uint64_t>(shape.Height, 1);
  array->slices = std::max<std::uint64_t>(shape.Depth, 1);
  Arena& arena = state().arena(device);
  error = CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(array->row, array->rows, &bytes) ||
      __builtin_mul_overflow(bytes, array->slices, &bytes) || bytes > arena.capacity()) {
    return nullptr;
  }
  array->granules = granules_for(bytes);
  array->offset = arena.take_physical(array->granules);
  if (array->offset == UINT64_MAX) return nullptr;
  state().note_usage();
  error = CUDA_SUCCESS;
  return array;
}

void release_array(SimArray& array) {
  if (array.granules == 0) return;
  state().arena(array.device).give_physical(array.offset, array.granules);
  array.granules = 0;
}

std::uint8_t* array_bytes(const SimArray& array) {
  return state().arena(array.device).physical_bytes(array.offset);
}

}  // namespace cupool::sim
