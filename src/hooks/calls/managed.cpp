// Managed memory: its allocation, cached as dedicated blocks, and the calls that move or advise its pages.
// The effect of such a call must not reach the block's next owner: a block that was advised, attached or
// moved goes back to the driver when it is freed.
#include "config/options.hpp"
#include "cuda/sources.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/state/permission.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/submit.hpp"

namespace cupool::hooks {

using cuda::real;
using memory::Taint;
using observe::Server;
using stats::Counter;

namespace {

constinit cuda::ManagedMemory global_memory{CU_MEM_ATTACH_GLOBAL};
constinit cuda::ManagedMemory host_memory{CU_MEM_ATTACH_HOST};

driver::Source* source_of(unsigned flags) {
  if (flags == CU_MEM_ATTACH_GLOBAL) return &global_memory;
  return flags == CU_MEM_ATTACH_HOST ? &host_memory : nullptr;
}

CUresult allocate(CUdeviceptr* pointer, size_t bytes, driver::Source& source, driver::Context context) {
  driver::Address address = 0;
  const auto result = to_result(memory.allocate_dedicated(context, source, bytes, &address));
  *pointer = address;  // 0 if it fails, as the driver does
  return result;
}

// A call on pages that succeeded taints every block in the range.
CUresult marked(CUresult result, Taint reason, CUdeviceptr pointer, size_t bytes) {
  if (result == CUDA_SUCCESS && is_serving()) memory.taint(pointer, reason, bytes);
  return result;
}

// Whether these are pages of a block that the program has freed and we keep. The call is refused: to the
// program the memory is not allocated, and the effect would reach the block's next owner.
bool are_gone(CUdeviceptr pointer) {
  FoundBlock block;
  return may_have_blocks() && look_up(pointer, &block) == Whose::kNotLive;
}
CUresult refuse_pages() {
  const CUresult allowed = ask_context();
  return allowed != CUDA_SUCCESS ? allowed : CUDA_ERROR_INVALID_VALUE;
}

template <typename Entry, typename... Args>
CUresult advise(const Entry& entry, CUdeviceptr pointer, size_t bytes, Args... args) {
  if (are_gone(pointer)) return tell_forwarded(entry.call(), refuse_pages());
  return marked(forward(entry, pointer, bytes, args...), Taint::kAdvised, pointer, bytes);
}

// The driver remembers where pages were last moved to, and has no call to forget it.
template <typename Entry, typename... Args>
CUresult prefetch(CUstream stream, const Entry& entry, CUdeviceptr pointer, size_t bytes, Args... args) {
  const CUresult result =
      are_gone(pointer) ? refuse_operand(stream) : submit_to(stream, entry, pointer, bytes, args...);
  tell_submitted(entry.call(), stream, result);
  return marked(result, Taint::kPrefetched, pointer, bytes);
}

template <typename Entry, typename... Args>
CUresult prefetch_all(CUstream stream, const Entry& entry, CUdeviceptr* pointers, size_t* bytes, size_t count,
                      Args... args) {
  for (size_t i = 0; pointers != nullptr && i < count; ++i) {
    if (are_gone(pointers[i])) return tell_submitted(entry.call(), stream, refuse_operand(stream));
  }
  const CUresult result = submit_to(stream, entry, pointers, bytes, count, args...);
  tell_submitted(entry.call(), stream, result);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; ++i)
    marked(result, Taint::kPrefetched, pointers[i], bytes[i]);
  return result;
}

template <typename Entry>
CUresult attach(CUstream named_stream, const Entry& entry, CUstream stream, CUdeviceptr pointer, size_t bytes,
                unsigned flags) {
  const CUresult result = are_gone(pointer)
                              ? refuse_operand(named_stream)
                              : submit(named_stream, [&] { return entry(stream, pointer, bytes, flags); });
  tell_submitted(entry.call(), named_stream, result);
  return marked(result, Taint::kAttached, pointer, 1);
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  AllocationReport report(cuda::Call::cuMemAllocManaged, nullptr, observe::Memory::kManaged);
  driver::Source* const source = source_of(flags);
  if (pointer != nullptr && bytes != 0 && source != nullptr && serves_allocation() &&
      config::options().managed && !memory.order().is_capturing()) {
    if (const driver::Context context = current_context()) {
      const CUresult result = allocate(pointer, bytes, *source, context);
      stats::count(result == CUDA_SUCCESS ? Counter::managed_allocations : Counter::failed_allocations);
      return report.answer(Server::kPool, pointer, bytes, result);
    }
  }
  const CUresult result =
      pass_on(Counter::managed_allocations, real.cuMemAllocManaged, pointer, bytes, flags);
  if (!Reentry::inside())
    stats::count(result == CUDA_SUCCESS ? Counter::forwarded_managed : Counter::failed_allocations);
  return report.answer(Server::kDriver, pointer, bytes, result);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
  return advise(real.cuMemAdvise, pointer, bytes, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return advise(real.cuMemAdvise_v2, pointer, bytes, advice, location);
}

CUresult cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                size_t bytes) {
  if (are_gone(pointer)) return tell_forwarded(cuda::Call::cuMemRangeGetAttribute, refuse_pages());
  return forward(real.cuMemRangeGetAttribute, data, size, attribute, pointer, bytes);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr pointer, size_t bytes) {
  if (are_gone(pointer)) return tell_forwarded(cuda::Call::cuMemRangeGetAttributes, refuse_pages());
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
  return attach(named(stream, DefaultStream::kLegacy), real.cuStreamAttachMemAsync, stream, pointer, bytes,
                flags);
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
  return attach(named(stream, DefaultStream::kPerThread), real.cuStreamAttachMemAsync_ptsz, stream, pointer,
                bytes, flags);
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

}  // namespace cupool::hooks
