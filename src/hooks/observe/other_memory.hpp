// Memory that is neither the pool's nor has an entry point of its own here: pinned and registered host
// memory, arrays, physical memory, nodes of graphs, what is imported. Which call gives or takes how much of
// what, by the call's arguments. Owns nothing, holds no lock; of a call that no listener is to be told of,
// nothing here runs.
#pragma once

#include <tuple>
#include <type_traits>

#include "hooks/observe/charges.hpp"
#include "hooks/observe/tell.hpp"

namespace cupool::hooks {

namespace detail {

template <typename Handle>
uint64_t number_of_handle(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<uint64_t>(handle);
  } else {
    return static_cast<uint64_t>(handle);
  }
}

inline uint64_t bytes_of_element(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 4;
  }
}

}  // namespace detail

// The elements of an array; of a mipmapped one, those of its first level.
template <typename Descriptor>
uint64_t bytes_of_array(const Descriptor* what) {
  if (what == nullptr) return 0;
  uint64_t depth = 1;
  if constexpr (requires { what->Depth; }) depth = what->Depth != 0 ? what->Depth : 1;
  const uint64_t height = what->Height != 0 ? what->Height : 1;
  return what->Width * height * depth * what->NumChannels * detail::bytes_of_element(what->Format);
}

// The program's memory pools, whose sizes the driver tells as long as they are there.
template <cuda::Call call, typename... Args>
void after_pool_made([[maybe_unused]] CUresult result, [[maybe_unused]] const Args&... args) {
  if constexpr (call == cuda::Call::cuMemPoolCreate) {
    if (Reentry::inside() || result != CUDA_SUCCESS) return;
    const auto all = std::tie(args...);
    const CUmemLocation& where = std::get<1>(all)->location;
    if (where.type == CU_MEM_LOCATION_TYPE_DEVICE)
      observe::note_pool(where.id, detail::number_of_handle(*std::get<0>(all)));
  }
}
template <cuda::Call call, typename... Args>
void before_pool_ends([[maybe_unused]] const Args&... args) {
  if constexpr (call == cuda::Call::cuMemPoolDestroy)
    observe::forget_pool(detail::number_of_handle(std::get<0>(std::tie(args...))));
}

// Tells what a call of a row has done to such memory. False: it is no call of that kind.
template <cuda::Call call, typename... Args>
bool tell_other_memory([[maybe_unused]] CUresult result, [[maybe_unused]] uint64_t begin,
                       [[maybe_unused]] const Args&... args) {
  using cuda::Call;
  using observe::Memory;
  [[maybe_unused]] const auto all = std::tie(args...);
  [[maybe_unused]] const bool is_done = result == CUDA_SUCCESS;
  if constexpr (call == Call::cuMemHostAlloc || call == Call::cuMemAllocHost_v2 ||
                call == Call::cuMemAllocHost) {
    const uint64_t where = is_done ? detail::number_of_handle(*std::get<0>(all)) : 0;
    tell_other_taken(call, Memory::kPinned, where, std::get<1>(all), result, begin);
  } else if constexpr (call == Call::cuMemHostRegister_v2 || call == Call::cuMemHostRegister) {
    tell_other_taken(call, Memory::kRegistered, detail::number_of_handle(std::get<0>(all)), std::get<1>(all),
                     result, begin);
  } else if constexpr (call == Call::cuGraphAddMemAllocNode) {
    const auto* const node = std::get<4>(all);
    const uint64_t bytes = node != nullptr ? node->bytesize : 0;
    tell_other_taken(call, Memory::kNode, is_done ? node->dptr : 0, bytes, result, begin);
  } else if constexpr (call == Call::cuMemImportFromShareableHandle) {
    const uint64_t handle = is_done ? *std::get<0>(all) : 0;
    tell_other_taken(call, Memory::kPhysical, handle, 0, result, begin);
  } else if constexpr (call == Call::cuMemPoolImportPointer) {
    tell_other_taken(call, Memory::kImported, is_done ? *std::get<0>(all) : 0, 0, result, begin);
  } else if constexpr (call == Call::cuExternalMemoryGetMappedBuffer) {
    const auto* const buffer = std::get<2>(all);
    const uint64_t bytes = buffer != nullptr ? buffer->size : 0;
    tell_other_taken(call, Memory::kImported, is_done ? *std::get<0>(all) : 0, bytes, result, begin);
  } else if constexpr (call == Call::cuMemFreeHost) {
    tell_other_given(call, Memory::kPinned, detail::number_of_handle(std::get<0>(all)), result, begin);
  } else if constexpr (call == Call::cuMemHostUnregister) {
    tell_other_given(call, Memory::kRegistered, detail::number_of_handle(std::get<0>(all)), result, begin);
  } else if constexpr (call == Call::cuArrayDestroy || call == Call::cuMipmappedArrayDestroy) {
    tell_other_given(call, Memory::kArray, detail::number_of_handle(std::get<0>(all)), result, begin);
  } else if constexpr (call == Call::cuMemRelease) {
    tell_other_given(call, Memory::kPhysical, std::get<0>(all), result, begin);
  } else {
    return false;
  }
  return true;
}

}  // namespace cupool::hooks
