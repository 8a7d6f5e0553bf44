// See tell.hpp.
#include "hooks/observe/tell.hpp"

#include "base/clock.hpp"

namespace cupool::hooks {

using observe::Server;

void tell_submission(cuda::Call call, CUstream stream, CUresult result, uint64_t begin, bool is_plain) {
  observer.submitted({call, number_of(stream), result, begin != 0 ? now_ns() - begin : 0, is_plain});
}

CUresult tell_forward(cuda::Call call, CUresult result, uint64_t begin) {
  observer.forwarded({call, result, begin != 0 ? now_ns() - begin : 0});
  return result;
}

namespace {

void tell_if_long(cuda::Call call, bool is_free, CUstream stream, CUresult result, uint64_t begin) {
  const uint64_t ns = now_ns() - begin;
  if (ns >= observe::kLong) observer.lasted({call, is_free, number_of(stream), result, ns});
}

}  // namespace

void AllocationReport::begin() {
  begin_ = now_ns();
  stats::last_service = {};
}

void AllocationReport::tell(Server server, const CUdeviceptr* pointer, size_t bytes, CUresult result) {
  if (Reentry::inside()) return;
  if (result == CUDA_SUCCESS) {
    const driver::Context context = stream_ != nullptr ? owner_of(stream_) : current_context();
    observe::Allocated what{call_, server, *pointer, bytes, number_of(stream_), context, memory_};
    what.service = server == Server::kPool
                       ? stats::last_service
                       : stats::Service{stats::Service::How::kDriver, stats::Service::By::kDriver};
    memory::BlockInfo held;
    if (server == Server::kPool && memory.find(*pointer, &held)) what.given = held.given;
    observer.allocated(what);
  } else {
    observer.failed({call_, server, false, false, 0, bytes, number_of(stream_), result});
  }
  tell_if_long(call_, false, stream_, result, begin_);
}

void tell_other_taken(cuda::Call call, observe::Memory memory, uint64_t handle, uint64_t bytes,
                      CUresult result, uint64_t begin) {
  if (Reentry::inside()) return;
  if (result == CUDA_SUCCESS) {
    observe::Allocated what{call, Server::kDriver, handle, bytes, 0, current_context(), memory};
    what.service = {stats::Service::How::kDriver, stats::Service::By::kDriver};
    observer.allocated(what);
  } else {
    observer.failed({call, Server::kDriver, false, false, 0, bytes, 0, result});
  }
  tell_if_long(call, false, nullptr, result, begin);
}

void tell_other_given(cuda::Call call, observe::Memory memory, uint64_t handle, CUresult result,
                      uint64_t begin) {
  if (Reentry::inside()) return;
  if (result == CUDA_SUCCESS) {
    if (handle != 0) observer.freed({call, Server::kDriver, handle, 0, 0, nullptr, memory, begin});
  } else {
    observer.failed({call, Server::kDriver, true, false, handle, 0, 0, result});
  }
  tell_if_long(call, true, nullptr, result, begin);
}

void FreeReport::look_up() {
  began_ = now_ns();
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
  observer.freed({call_, Server::kPool, pointer_, bytes_, number_of(stream_), context_,
                  observe::Memory::kDevice, began_});
}

void FreeReport::tell(CUresult result) {
  const Server server = is_block_ || is_bad_pointer_ ? Server::kPool : Server::kDriver;
  if (result != CUDA_SUCCESS) {
    observer.failed({call_, server, true, is_bad_pointer_, pointer_, 0, number_of(stream_), result});
  } else if (is_block_) {
    tell_freed();
  } else if (pointer_ != 0) {  // to free nothing succeeds, and frees nothing
    observer.freed(
        {call_, server, pointer_, 0, number_of(stream_), context_, observe::Memory::kDevice, began_});
  }
  if (!Reentry::inside()) tell_if_long(call_, true, stream_, result, began_);
}

}  // namespace cupool::hooks
