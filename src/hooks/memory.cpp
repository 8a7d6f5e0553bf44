// Device memory: what the pool serves, and what the driver serves beside it. Each entry point checks, calls and counts;
// it owns nothing and holds no lock across the driver. In doubt a call goes to the driver, which then answers for itself:
// bad arguments, no context, a capture that forbids allocation.
#include "hooks/forward.hpp"
#include "hooks/serving.hpp"
#include "hooks/submit.hpp"

using cupool::cuda::real;
using cupool::hooks::DefaultStream;
using cupool::hooks::forward;
using cupool::hooks::named;
using cupool::hooks::pools;
using cupool::hooks::submit;
using cupool::hooks::with_room;
using cupool::pool::Freed;
using cupool::stats::Counter;

namespace {

void count_result(CUresult result, Counter done, Counter failed) {
  if (!cupool::Reentry::inside()) cupool::stats::count(result == CUDA_SUCCESS ? done : failed);
}

// A stream-ordered call is work on its stream like any other.
template <typename Call>
CUresult ordered(CUstream stream, DefaultStream zero, Counter counter, Call&& call) {
  const CUresult result = submit(named(stream, zero), call);
  if (result == CUDA_SUCCESS && !cupool::Reentry::inside()) cupool::stats::count(counter);
  return result;
}

// Whether this thread may free memory at all while something captures. The driver's own answer to a like call, which
// also does to the capture what that call would have done.
CUresult ask_capture() {
  const cupool::Reentry guard;
  CUdeviceptr probe = 0;
  const CUresult result = real.cuMemAlloc_v2(&probe, 1);
  if (result == CUDA_SUCCESS) real.cuMemFree_v2(probe);
  return result;
}

// The driver's answer for a block of ours, or what the driver says of anything else. `call` asks the driver.
template <typename Call>
CUresult free_or(CUdeviceptr pointer, Call&& call) {
  if (!cupool::hooks::is_serving() || !cupool::pool::Pools::owns(pointer) || !cupool::hooks::has_context()) return call();
  if (pools.order().is_capturing()) {
    if (const CUresult refused = ask_capture(); refused != CUDA_SUCCESS) return refused;
  }
  return pools.free(pointer) == Freed::kDone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate(CUdeviceptr* pointer, size_t bytes) {
  if (pointer != nullptr && bytes != 0 && cupool::hooks::serves_allocation() && !pools.order().is_capturing()) {
    if (const cupool::driver::Context context = cupool::hooks::current_context()) {
      cupool::driver::Address address = 0;
      const auto status = pools.allocate(context, bytes, &address);
      if (status == cupool::driver::kSuccess) *pointer = address;
      return cupool::hooks::to_result(status);
    }
  }
  return forward(real.cuMemAlloc_v2, pointer, bytes);
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  const CUresult result = allocate(pointer, bytes);
  count_result(result, Counter::allocations, Counter::failed_allocations);
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  const CUresult result = free_or(pointer, [&] { return forward(real.cuMemFree_v2, pointer); });
  count_result(result, Counter::frees, Counter::failed_frees);
  return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
  // The driver's pitch on every device so far: the width rounded up to 512. Odd input is the driver's to judge.
  constexpr size_t kPitchStep = 512;
  const bool plain = pointer != nullptr && pitch != nullptr && width != 0 && height != 0 &&
                     (element == 4 || element == 8 || element == 16) && width < size_t{1} << 40 &&
                     height < size_t{1} << 20;
  if (!plain || !cupool::hooks::serves_allocation()) {
    return forward(Counter::pitched_allocations, real.cuMemAllocPitch_v2, pointer, pitch, width, height, element);
  }
  const size_t row = (width + kPitchStep - 1) & ~(kPitchStep - 1);
  const CUresult result = allocate(pointer, row * height);
  if (result != CUDA_SUCCESS) return result;
  *pitch = row;
  cupool::stats::count(Counter::pitched_allocations);
  return result;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult result = forward(Counter::pointer_questions, real.cuMemGetInfo_v2, free, total);
  if (result == CUDA_SUCCESS && free != nullptr && cupool::hooks::is_serving()) {
    *free += pools.releasable_bytes(cupool::hooks::current_context());
  }
  return result;
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return ordered(stream, DefaultStream::kLegacy, Counter::async_allocations,
                 [&] { return with_room([&] { return real.cuMemAllocAsync(pointer, bytes, stream); }); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return ordered(stream, DefaultStream::kPerThread, Counter::async_allocations,
                 [&] { return with_room([&] { return real.cuMemAllocAsync_ptsz(pointer, bytes, stream); }); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return ordered(stream, DefaultStream::kLegacy, Counter::async_allocations,
                 [&] { return with_room([&] { return real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream); }); });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return ordered(stream, DefaultStream::kPerThread, Counter::async_allocations,
                 [&] { return with_room([&] { return real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream); }); });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_or(pointer, [&] {
    return ordered(stream, DefaultStream::kLegacy, Counter::async_frees, [&] { return real.cuMemFreeAsync(pointer, stream); });
  });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_or(pointer, [&] {
    return ordered(stream, DefaultStream::kPerThread, Counter::async_frees, [&] { return real.cuMemFreeAsync_ptsz(pointer, stream); });
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return with_room(
      [&] { return forward(Counter::mapped_allocations, real.cuMemCreate, handle, bytes, properties, flags); });
}

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return with_room([&] { return forward(Counter::array_allocations, real.cuArrayCreate_v2, array, descriptor); });
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return with_room([&] { return forward(Counter::array_allocations, real.cuArray3DCreate_v2, array, descriptor); });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels) {
  return with_room(
      [&] { return forward(Counter::array_allocations, real.cuMipmappedArrayCreate, array, descriptor, levels); });
}
