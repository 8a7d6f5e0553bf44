// Memory shared with other processes. A block alone in its segment is exported under the driver's handle, a
// cut block under a sealed handle, which only cupool can open, and a block of mapped memory, for which the
// driver has no handle, under an export token. Exported memory is tainted first: no new block may be cut next
// to it.
#include <atomic>
#include <bit>
#include <map>
#include <new>

#include "base/host_memory.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "hooks/sharing/blocks.hpp"
#include "hooks/sharing/lending.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/state/permission.hpp"
#include "hooks/submit/forward.hpp"
#include "share/sealed_handle.hpp"

namespace cupool::hooks {

using cuda::real;
using memory::Taint;
using stats::Event;

namespace {

// The driver makes a new handle at every call. We keep one per segment, so that an importer of several blocks
// recognises the segment.
class SegmentHandles {
 public:
  CUresult get(const FoundBlock& block, CUipcMemHandle* handle) {
    {
      Guard hold(lock_);
      const auto known = handles_.find(block.segment);
      if (known != handles_.end() && known->second.number == block.segment_number) {
        *handle = known->second.handle;
        stats::count(Event::ipc_exports);
        return CUDA_SUCCESS;
      }
    }
    const CUresult result = forward(Event::ipc_exports, real.cuIpcGetMemHandle, handle, block.segment);
    // Short of host memory the handle is not kept: the segment's next block gets a different one.
    if (result != CUDA_SUCCESS || host::is_short()) return result;
    Guard hold(lock_);
    Known& known = handles_[block.segment];
    if (known.number != block.segment_number) known = {block.segment_number, *handle};
    *handle = known.handle;
    return result;
  }

 private:
  struct Known {
    uint64_t number = 0;
    CUipcMemHandle handle = {};
  };
  Lock lock_{Rank::kSealedHandles};
  std::map<CUdeviceptr, Known> handles_ CUPOOL_GUARDED_BY(lock_);
};

// Created at the first export and never destroyed; null: the host has no memory.
SegmentHandles* segment_handles() {
  static constinit std::atomic<SegmentHandles*> shared{nullptr};
  SegmentHandles* found = shared.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  auto* const made = new (std::nothrow) SegmentHandles;
  if (shared.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
  delete made;
  return found;
}

// The driver has no handle of this kind for mapped memory.
CUresult export_mapped(CUipcMemHandle* handle, const FoundBlock& block) {
  const CUresult result = write_export_token(block, handle);
  if (result != CUDA_SUCCESS) return result;
  stats::count(Event::ipc_exports);
  stats::count(Event::tickets);
  return result;
}

CUresult export_block(CUipcMemHandle* handle, CUdeviceptr pointer, const FoundBlock& block) {
  // Check the context first: not every path below asks the driver.
  const CUresult allowed = ask_context();
  if (allowed != CUDA_SUCCESS) return allowed;
  if (!memory.taint(pointer, Taint::kExported))
    return host::is_short() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  memory.drain_before_export(pointer);
  if (block.mapped) return export_mapped(handle, block);
  if (block.dedicated) return forward(Event::ipc_exports, real.cuIpcGetMemHandle, handle, block.segment);
  SegmentHandles* const handles = segment_handles();
  if (handles == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = handles->get(block, handle);
  if (result != CUDA_SUCCESS) return result;
  auto bytes = std::bit_cast<share::Handle>(*handle);
  if (!share::seal(&bytes, {block.start - block.segment, block.bytes})) {
    static constinit log::Once once;
    if (once.first()) {
      log::line(
          "blocks of the pool cannot be shared with other processes on this driver; CUPOOL_SPLIT=no makes "
          "them shareable");
    }
    *handle = {};
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *handle = std::bit_cast<CUipcMemHandle>(bytes);
  stats::count(Event::sealed_handles);
  return result;
}

template <typename Open>
CUresult open_with_room(int where, Open&& open) {
  const auto room = [&](allocator::Effort effort) { return make_room(effort, where); };
  return call_with_room(open(), room, open);
}

// False: the driver refuses these arguments itself.
bool open_export_token(CUdeviceptr* pointer, const share::Handle& handle, const share::ExportToken& token,
                       unsigned flags, CUresult* result) {
  if (pointer == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return false;
  if (current_context() == nullptr) return false;
  *result = CUDA_ERROR_INVALID_CONTEXT;  // the driver's answer to a process that opens its own handle
  if (is_own_export_token(token)) return true;
  *result = open_with_room(cuda::kHere, [&] { return imports.open(pointer, handle, token); });
  if (*result == CUDA_SUCCESS) stats::count(Event::ipc_imports);
  return true;
}

CUresult open(const Imports::Opener& opener, CUdeviceptr* pointer, const CUipcMemHandle& handle,
              unsigned flags) {
  auto segment = std::bit_cast<share::Handle>(handle);
  share::Place place;
  share::ExportToken token;
  CUresult opened = CUDA_SUCCESS;
  if (!Reentry::inside() && share::from_handle(segment, &token) &&
      open_export_token(pointer, segment, token, flags, &opened))
    return opened;
  if (!Reentry::inside() && share::unseal(&segment, &place)) {
    const CUresult result =
        open_with_room(opener.room(), [&] { return imports.open(opener, pointer, segment, place, flags); });
    if (result == CUDA_SUCCESS) stats::count(Event::ipc_imports);
    // A handle that looked sealed but was refused may still be a driver handle of a kind we have not seen.
    if (result != CUDA_ERROR_INVALID_VALUE) return result;
  }
  return forward(Event::ipc_imports, opener, pointer, handle, flags);
}

CUresult open_and_tell(const Imports::Opener& opener, CUdeviceptr* pointer, const CUipcMemHandle& handle,
                       unsigned flags) {
  const uint64_t begin = begin_observed(SlowReason::kMemoryObserved);
  const CUresult result = open(opener, pointer, handle, flags);
  if (begin != 0 && result == CUDA_SUCCESS) [[unlikely]] {
    FoundBlock block;
    // (Of the driver's own handles the size is not asked for.)
    const uint64_t bytes = look_up(*pointer, &block) == Whose::kBlock ? block.bytes : 0;
    tell_other_taken(opener.call(), observe::Memory::kImported, *pointer, bytes, result, begin);
  }
  return result;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  FoundBlock block;
  const Whose whose = look_up_lasting(pointer, &block);
  if (whose == Whose::kBlock && !block.imported && handle != nullptr) {
    const CUresult result = export_block(handle, pointer, block);
    if (result == CUDA_SUCCESS && is_slow_for(SlowReason::kMemoryObserved)) [[unlikely]]
      observer.shared({cuda::Call::cuIpcGetMemHandle, true, block.start, block.bytes});
    return result;
  }
  const CUdeviceptr asked = whose == Whose::kNotLive ? kUnknownAddress : pointer;
  return forward(Event::ipc_exports, real.cuIpcGetMemHandle, handle, asked);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return open_and_tell(real.cuIpcOpenMemHandle, pointer, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return open_and_tell(real.cuIpcOpenMemHandle_v2, pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  CUresult result = CUDA_SUCCESS;
  const uint64_t begin = begin_observed(SlowReason::kMemoryObserved);
  const auto tell = [&](CUresult answer) {
    if (begin != 0 && answer == CUDA_SUCCESS) [[unlikely]]
      tell_other_given(cuda::Call::cuIpcCloseMemHandle, observe::Memory::kImported, pointer, answer, begin);
    return answer;
  };
  if (!Reentry::inside() && imports.close(pointer, &result)) return tell(result);
  FoundBlock block;
  const bool is_known = look_up(pointer, &block) == Whose::kDrivers;
  return tell(call_guarded(real.cuIpcCloseMemHandle, is_known ? pointer : kUnknownAddress));
}

}  // namespace cupool::hooks
