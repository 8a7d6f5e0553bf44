// See room.hpp.
#include "hooks/submit/room.hpp"

#include <climits>

#include "base/own_call.hpp"
#include "cuda/relaxed_capture.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

int device_of(driver::Context context) {
  int device = memory::kEveryDevice;
  if (context == nullptr) context = current_context();
  if (context == nullptr || memory.device_of(context, &device)) return device;
  return memory.driver().device(&device) == driver::kSuccess ? device : memory::kEveryDevice;
}

bool make_room(allocator::Effort effort, int where, driver::Context context, uint64_t bytes) {
  if (where == cuda::kNotRepeated || !is_serving()) return false;
  int device = where;
  // Memory of other devices does not help, and releasing it would wait for their work.
  if (where == cuda::kHere) device = device_of(context);
  if (where == cuda::kAnywhere) device = memory::kEveryDevice;
  // A thread waits for the work of its own context alone, so somebody must have asked.
  if (context == nullptr) context = current_context();
  if (context == nullptr) context = allocator::kOutside;
  if (!memory.order().is_capturing())
    return memory.shortage().release_for_call(device, effort, context, bytes);
  // Waiting for all work would end the capture.
  if (effort == allocator::Effort::kAll) return memory.shortage().wait_for_releases(device);
  const cuda::RelaxedCapture allowed;
  const order::CaptureGate::Relaxed relaxed;
  return memory.shortage().release_for_call(device, effort, context, bytes);
}

bool fits_multiprocessor(CUfunction function, uint64_t threads, size_t shared_bytes) {
  const OwnCall guard;
  int blocks = 0;
  const int most = static_cast<int>(std::min<uint64_t>(threads, INT_MAX));
  return cuda::real.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, most, shared_bytes) ==
             CUDA_SUCCESS &&
         blocks > 0;
}

}  // namespace cupool::hooks
