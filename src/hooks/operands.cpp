// See operands.hpp.
#include "hooks/operands.hpp"

namespace cupool::hooks {

bool is_good_operand(CUdeviceptr address, uint64_t bytes, Owners* owners) {
  if (bytes == 0) return true;
  Block block;
  switch (look_up(address, &block)) {
    case Whose::kDrivers:
      return true;
    case Whose::kNobodys:
      return false;
    case Whose::kBlock:
      break;
  }
  if (!block.imported) owners->add(block.context, block.mapped);
  return bytes <= block.bytes - (address - block.start);
}

// The driver checks context and stream first: if either is missing or has failed, that error takes
// precedence.
CUresult refuse_operand(CUstream stream) {
  const Reentry guard;
  size_t free = 0;
  size_t total = 0;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = cuda::real.cuMemGetInfo_v2(&free, &total);
  if (result == CUDA_SUCCESS) result = cuda::real.cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cupool::hooks
