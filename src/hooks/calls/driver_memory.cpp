// Memory of the driver's that the pool never serves: physical memory and arrays. Each entry point passes the
// call on and tells listeners of it; it owns nothing and holds no lock across the driver.
#include "hooks/observe/other_memory.hpp"
#include "hooks/observe/tell.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/state/serving.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/room.hpp"

namespace cupool::hooks {

using cuda::real;
using stats::Counter;

namespace {

template <typename Entry, typename Array, typename Descriptor, typename... Args>
CUresult create_array(const Entry& entry, Array* array, const Descriptor* descriptor, Args... args) {
  const uint64_t begin = begin_observed(SlowReason::kMemoryObserved);
  const CUresult result = observe_call(
      entry.call(), [&] { return pass_on(Counter::array_allocations, entry, array, descriptor, args...); });
  if (begin != 0) [[unlikely]]
    tell_other_taken(entry.call(), observe::Memory::kArray,
                     result == CUDA_SUCCESS ? reinterpret_cast<uint64_t>(*array) : 0,
                     bytes_of_array(descriptor), result, begin);
  return result;
}

}  // namespace

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  const uint64_t begin = begin_observed(SlowReason::kMemoryObserved);
  const CUresult result = observe_call(cuda::Call::cuMemCreate, [&] {
    return pass_on(Counter::mapped_allocations, real.cuMemCreate, handle, bytes, properties, flags);
  });
  if (begin != 0) [[unlikely]]
    tell_other_taken(cuda::Call::cuMemCreate, observe::Memory::kPhysical,
                     result == CUDA_SUCCESS ? *handle : 0, bytes, result, begin);
  return result;
}

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return create_array(real.cuArrayCreate_v2, array, descriptor);
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return create_array(real.cuArray3DCreate_v2, array, descriptor);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned levels) {
  return create_array(real.cuMipmappedArrayCreate, array, descriptor, levels);
}

}  // namespace cupool::hooks
