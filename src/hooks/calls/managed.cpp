// Managed memory: its allocation, cached as whole blocks, and the calls that move or advise its pages. The
// effect of such a call must not reach the block's next owner: a block that was advised, attached or moved
// goes back to the driver when it is freed.
#include "config/options.hpp"
#include "cuda/cuda_driver.hpp"
#include "hooks/observe/debug_fill.hpp"
#include "hooks/state/permission.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/submit.hpp"

using cupool::cuda::real;
using cupool::hooks::DefaultStream;
using cupool::hooks::forward;
using cupool::hooks::memory;
using cupool::hooks::named;
using cupool::hooks::submit;
using cupool::hooks::submit_to;
using cupool::memory::Taint;
using cupool::stats::Counter;

namespace {

constinit cupool::cuda::ManagedDriver global_memory{CU_MEM_ATTACH_GLOBAL};
constinit cupool::cuda::ManagedDriver host_memory{CU_MEM_ATTACH_HOST};

cupool::driver::Driver* source_of(unsigned flags) {
  if (flags == CU_MEM_ATTACH_GLOBAL) return &global_memory;
  return flags == CU_MEM_ATTACH_HOST ? &host_memory : nullptr;
}

CUresult allocate(CUdeviceptr* pointer, size_t bytes, cupool::driver::Driver& source,
                  cupool::driver::Context context) {
  cupool::driver::Address address = 0;
  const auto result = cupool::hooks::to_result(memory.allocate_whole(context, source, bytes, &address));
  *pointer = address;  // 0 if it fails, as the driver does
  if (result == CUDA_SUCCESS && cupool::hooks::watches_blocks())
    cupool::hooks::block_given(address, bytes, cupool::hooks::First::kHost);
  return result;
}

// A call on pages that succeeded taints every block in the range.
CUresult marked(CUresult result, Taint reason, CUdeviceptr pointer, size_t bytes) {
  if (result == CUDA_SUCCESS && cupool::hooks::is_serving()) memory.taint(pointer, reason, bytes);
  return result;
}

// Pages of a block that the program has freed and we keep: to the program they are none, and what is done to
// them would reach the next owner.
bool are_gone(CUdeviceptr pointer) {
  cupool::hooks::Block block;
  return cupool::hooks::may_have_blocks() &&
         cupool::hooks::look_up(pointer, &block) == cupool::hooks::Whose::kNobodys;
}
CUresult refuse_pages() {
  const CUresult allowed = cupool::hooks::ask_context();
  return allowed != CUDA_SUCCESS ? allowed : CUDA_ERROR_INVALID_VALUE;
}

template <typename Entry, typename... Args>
CUresult advise(const Entry& entry, CUdeviceptr pointer, size_t bytes, Args... args) {
  if (are_gone(pointer)) return refuse_pages();
  return marked(forward(entry, pointer, bytes, args...), Taint::kAdvised, pointer, bytes);
}

// The driver remembers where pages were last moved to, and has no call to forget it.
template <typename Entry, typename... Args>
CUresult prefetch(CUstream stream, const Entry& entry, CUdeviceptr pointer, size_t bytes, Args... args) {
  if (are_gone(pointer)) return cupool::hooks::refuse_operand(stream);
  return marked(submit_to(stream, entry, pointer, bytes, args...), Taint::kPrefetched, pointer, bytes);
}

template <typename Entry, typename... Args>
CUresult prefetch_all(CUstream stream, const Entry& entry, CUdeviceptr* pointers, size_t* bytes, size_t count,
                      Args... args) {
  for (size_t i = 0; pointers != nullptr && i < count; ++i) {
    if (are_gone(pointers[i])) return cupool::hooks::refuse_operand(stream);
  }
  const CUresult result = submit_to(stream, entry, pointers, bytes, count, args...);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i)
    marked(result, Taint::kPrefetched, pointers[i], bytes[i]);
  return result;
}

template <typename Call>
CUresult attach(CUstream stream, CUdeviceptr pointer, Call&& call) {
  if (are_gone(pointer)) return cupool::hooks::refuse_operand(stream);
  return marked(submit(stream, call), Taint::kAttached, pointer, 1);
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  cupool::driver::Driver* const source = source_of(flags);
  if (pointer != nullptr && bytes != 0 && source != nullptr && cupool::hooks::serves_allocation() &&
      cupool::config::options().managed && !memory.order().is_capturing()) {
    if (const cupool::driver::Context context = cupool::hooks::current_context()) {
      const CUresult result = allocate(pointer, bytes, *source, context);
      if (result == CUDA_SUCCESS) cupool::stats::count(Counter::managed_allocations);
      return result;
    }
  }
  return forward(Counter::managed_allocations, real.cuMemAllocManaged, pointer, bytes, flags);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
  return advise(real.cuMemAdvise, pointer, bytes, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return advise(real.cuMemAdvise_v2, pointer, bytes, advice, location);
}

CUresult cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                size_t bytes) {
  if (are_gone(pointer)) return refuse_pages();
  return forward(real.cuMemRangeGetAttribute, data, size, attribute, pointer, bytes);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr pointer, size_t bytes) {
  if (are_gone(pointer)) return refuse_pages();
  return forward(real.cuMemRangeGetAttributes, data, sizes, attributes, count, pointer, bytes);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream) {
  return prefetch(named(stream, DefaultStream::kLegacy), real.cuMemPrefetchAsync, pointer, bytes, device,
                  stream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream) {
  return prefetch(named(stream, DefaultStream::kPerThread), real.cuMemPrefetchAsync_ptsz, pointer, bytes,
                  device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                               CUstream stream) {
  return prefetch(named(stream, DefaultStream::kLegacy), real.cuMemPrefetchAsync_v2, pointer, bytes, location,
                  flags, stream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                                    CUstream stream) {
  return prefetch(named(stream, DefaultStream::kPerThread), real.cuMemPrefetchAsync_v2_ptsz, pointer, bytes,
                  location, flags, stream);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
  return attach(named(stream, DefaultStream::kLegacy), pointer,
                [&] { return real.cuStreamAttachMemAsync(stream, pointer, bytes, flags); });
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
  return attach(named(stream, DefaultStream::kPerThread), pointer,
                [&] { return real.cuStreamAttachMemAsync_ptsz(stream, pointer, bytes, flags); });
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* pointers, size_t* bytes, size_t count, CUmemLocation* locations,
                                 size_t* indices, size_t location_count, unsigned long long flags,
                                 CUstream stream) {
  return prefetch_all(named(stream, DefaultStream::kLegacy), real.cuMemPrefetchBatchAsync, pointers, bytes,
                      count, locations, indices, location_count, flags, stream);
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr* pointers, size_t* bytes, size_t count,
                                      CUmemLocation* locations, size_t* indices, size_t location_count,
                                      unsigned long long flags, CUstream stream) {
  return prefetch_all(named(stream, DefaultStream::kPerThread), real.cuMemPrefetchBatchAsync_ptsz, pointers,
                      bytes, count, locations, indices, location_count, flags, stream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* pointers, size_t* bytes, size_t count,
                                           CUmemLocation* locations, size_t* indices, size_t location_count,
                                           unsigned long long flags, CUstream stream) {
  return prefetch_all(named(stream, DefaultStream::kLegacy), real.cuMemDiscardAndPrefetchBatchAsync, pointers,
                      bytes, count, locations, indices, location_count, flags, stream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr* pointers, size_t* bytes, size_t count,
                                                CUmemLocation* locations, size_t* indices,
                                                size_t location_count, unsigned long long flags,
                                                CUstream stream) {
  return prefetch_all(named(stream, DefaultStream::kPerThread), real.cuMemDiscardAndPrefetchBatchAsync_ptsz,
                      pointers, bytes, count, locations, indices, location_count, flags, stream);
}
