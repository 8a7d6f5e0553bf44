// See tell.hpp.
#include "hooks/observe/tell.hpp"

#include "base/clock.hpp"

namespace cupool::hooks {

using observe::Server;

void tell_submission(cuda::Call call, CUstream stream, CUresult result, uint64_t begin) {
  observer.submitted({call, number_of(stream), result, begin != 0 ? now_ns() - begin : 0});
}

CUresult tell_forward(cuda::Call call, CUresult result) {
  observer.forwarded({call, result});
  return result;
}

void tell_allocated_now(cuda::Call call, Server server, const CUdeviceptr* pointer, size_t bytes,
                        CUresult result, CUstream stream) {
  if (Reentry::inside()) return;
  if (result == CUDA_SUCCESS) {
    const driver::Context context = stream != nullptr ? owner_of(stream) : current_context();
    observer.allocated({call, server, *pointer, bytes, number_of(stream), context});
  } else {
    observer.failed({call, server, false, false, 0, bytes, number_of(stream), result});
  }
}

void FreeReport::look_up() {
  if (!is_serving()) return;
  memory::BlockInfo held;
  if (memory.find(pointer_, &held) && held.start == pointer_ && !held.free_pending) {
    is_block_ = true;
    bytes_ = held.bytes;
    context_ = held.context;
  } else if (memory.native() != nullptr && memory.native()->has_block(pointer_)) {
    is_block_ = true;
    context_ = current_context();
  }
}

void FreeReport::tell_freed() {
  if (!is_block_ || is_told_) return;
  is_told_ = true;
  observer.freed({call_, Server::kPool, pointer_, bytes_, number_of(stream_), context_});
}

void FreeReport::tell(CUresult result) {
  const Server server = is_block_ || is_bad_pointer_ ? Server::kPool : Server::kDriver;
  if (result != CUDA_SUCCESS) {
    observer.failed({call_, server, true, is_bad_pointer_, pointer_, 0, number_of(stream_), result});
  } else if (is_block_) {
    tell_freed();
  } else {
    observer.freed({call_, server, pointer_, 0, number_of(stream_), context_});
  }
}

}  // namespace cupool::hooks
