// See operands.hpp.
#include "hooks/submit/operands.hpp"

#include "hooks/state/permission.hpp"

namespace cupool::hooks {

bool is_good_operand(CUdeviceptr address, uint64_t bytes, Owners* owners) {
  if (bytes == 0) return true;
  const bool may_be_gone = memory.may_be_gone(address);
  FoundBlock block;
  switch (look_up(address, &block)) {
    case Whose::kDrivers:
      return true;
    case Whose::kNotLive:
      return false;
    case Whose::kBlock:
      break;
  }
  if (!block.imported) owners->add(block.context, block.start, block.mapped);
  return bytes <= block.bytes - (address - block.start) || may_be_gone;
}

bool is_good_word(CUdeviceptr address) {
  constexpr CUdeviceptr kUnit = 512;
  constexpr CUdeviceptr kLarge = 1 << 20;
  FoundBlock block;
  if (look_up(address, &block) != Whose::kNotLive) return true;
  // The word may lie behind the end of a block, in bytes by which the driver would have rounded it up: to
  // kUnit if small, to 2 * kLarge if large, so that one of two steps back finds the block.
  if (look_up(address & ~(kUnit - 1), &block) == Whose::kBlock) return true;
  for (const CUdeviceptr back : {kLarge, 2 * kLarge}) {
    if (look_up(address - back, &block) != Whose::kBlock || block.bytes <= kLarge) continue;
    if (address - block.start < (block.bytes + 2 * kLarge - 1) / (2 * kLarge) * (2 * kLarge)) return true;
  }
  return false;
}

// The driver checks context and stream first: if either is missing or has failed, that error takes
// precedence. A stream that the program created needs no current context, and accepts work from host
// functions, except copies, which it answers with NOT_PERMITTED.
CUresult refuse_operand(CUstream stream, bool is_memset) {
  const bool is_made = stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  CUresult result = ask_context();
  if (is_made && (result == CUDA_ERROR_INVALID_CONTEXT || (is_memset && result == CUDA_ERROR_NOT_PERMITTED)))
    result = CUDA_SUCCESS;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const Reentry guard;
  if (result == CUDA_SUCCESS) result = cuda::real.cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cupool::hooks
