// Entry points that share chunks between processes as POSIX descriptors.
#include <cuda.h>

#include <cstring>

#include "sim/chunk_files.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

extern "C" {

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return in_driver(SIM_SITE(cuMemExportToShareableHandle), [&]() -> CUresult {
    PhysicalMemory* const memory = find_physical(handle);
    if (out == nullptr || memory == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    // Only a type that was asked for when the chunk was made.
    const bool asked = (memory->properties.requestedHandleTypes & static_cast<unsigned>(type)) != 0;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !asked) return CUDA_ERROR_INVALID_VALUE;
    const int file = export_chunk(*memory);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    memory->exported = true;
    state().shared_with_processes = true;
    std::memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
  });
}

// The descriptor is the value of `shared` itself, and stays the caller's to close.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* shared,
                                        CUmemAllocationHandleType type) {
  return in_driver(SIM_SITE(cuMemImportFromShareableHandle), [&]() -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    PhysicalMemory memory;
    const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(shared));
    if (!import_chunk(descriptor, memory)) return CUDA_ERROR_INVALID_VALUE;
    state().shared_with_processes = true;
    *out = adopt_physical(memory);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
