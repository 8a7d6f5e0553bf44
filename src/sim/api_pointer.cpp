// Entry points that answer questions about a pointer. One switch serves the single and the list form; they
// differ for a pointer the driver does not know: the first is an error, the second answers zeros.
#include <cuda.h>

#include <cstring>
#include <optional>

#include "sim/contexts.hpp"
#include "sim/entry.hpp"
#include "sim/mapped_memory.hpp"

using namespace cupool::sim;

namespace {

template <typename T, typename V>
CUresult put(void* out, V value) {
  const T typed = static_cast<T>(value);
  // NOLINTNEXTLINE(bugprone-sizeof-expression): a pointer is one of the values that are asked for
  std::memcpy(out, &typed, sizeof typed);
  return CUDA_SUCCESS;
}

bool on_host(const Allocation& a) {
  return a.kind == MemoryKind::kPinned || a.kind == MemoryKind::kRegistered;
}

// What the device of the current context may do there.
unsigned access_flags(const Allocation& mapping) {
  ContextPtr context;
  if (current_context(context) != CUDA_SUCCESS) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
  return mapping.access[static_cast<std::size_t>(context->device)];
}

CUresult answer_zero(void* out) {
  put<CUdeviceptr>(out, 0u);
  return CUDA_ERROR_INVALID_VALUE;
}

// What differs for mapped memory; nullopt: nothing, the answer is that for any memory.
std::optional<CUresult> answer_mapped(void* out, CUpointer_attribute which, const Allocation& a,
                                      CUdeviceptr p) {
  const PhysicalMemory& memory = mapped_memory().physical[a.physical];
  const Reservation reservation = reservation_of(p, 1);
  const auto& flags = memory.properties.allocFlags;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(out, a.is_host_chunk() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (a.host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE) return put<CUdeviceptr>(out, p);
      return answer_zero(out);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(out, reservation.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(out, reservation.bytes);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(out, memory.properties.requestedHandleTypes);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<unsigned>(out, !a.is_host_chunk() && flags.gpuDirectRDMACapable != 0 ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<unsigned>(out, (flags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0 ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned>(out, access_flags(a));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(out, memory.block_id);
    default:
      return std::nullopt;
  }
}

CUresult answer(void* out, CUpointer_attribute which, const Allocation& a, CUdeviceptr p) {
  if (a.kind == MemoryKind::kMapped) {
    const std::optional<CUresult> own = answer_mapped(out, which, a, p);
    if (own.has_value()) return *own;
  }
  const bool owned = a.kind == MemoryKind::kDevice || a.kind == MemoryKind::kManaged ||
                     a.kind == MemoryKind::kImported || on_host(a);
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put<CUcontext>(out, owned ? a.context : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(out, on_host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put<CUdeviceptr>(out, p);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (on_host(a) || a.kind == MemoryKind::kManaged) return put<CUdeviceptr>(out, p);
      return answer_zero(out);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      std::memset(out, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
      return a.kind == MemoryKind::kDevice ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put<unsigned>(out, a.sync_memops || a.kind == MemoryKind::kManaged ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(out, a.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(out, a.kind == MemoryKind::kManaged ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(out, a.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(out, a.kind == MemoryKind::kDevice ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(out, a.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(out, a.size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put<CUdeviceptr>(out, a.base / kGranule * kGranule);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<size_t>(out, granules_for(a.size) * kGranule);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<unsigned>(out, a.kind == MemoryKind::kDevice ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(out, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(out, 0u);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<unsigned>(out, a.kind == MemoryKind::kDevice ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put<CUmemoryPool>(out, a.pool);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(out, a.buffer_id);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What the list form says of memory the driver does not know.
void answer_unknown(void* out, CUpointer_attribute which, CUdeviceptr p) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(out, -2);
      return;
    // It takes an unknown pointer for one of the host's, and says nothing of its range.
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put<CUdeviceptr>(out, p);
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put<std::uint64_t>(out, 0u);
      return;
    default:
      put<unsigned>(out, 0u);
  }
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr p) {
  return in_driver(SIM_SITE(cuPointerGetAttribute), [&]() -> CUresult {
    const Allocation* const found = state().allocations.holding(p);
    if (out == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return answer(out, which, *found, p);
  });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* list, void** out, CUdeviceptr p) {
  return in_driver(SIM_SITE(cuPointerGetAttributes), [&]() -> CUresult {
    if (list == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Allocation* const found = state().allocations.holding(p);
    for (unsigned i = 0; i < count; ++i) {
      if (found == nullptr) answer_unknown(out[i], list[i], p);
      // What does not apply to known memory is zero.
      if (found != nullptr && answer(out[i], list[i], *found, p) != CUDA_SUCCESS)
        answer_unknown(out[i], list[i], 0);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr p) {
  return in_driver(SIM_SITE(cuPointerSetAttribute), [&]() -> CUresult {
    Allocation* const found = state().allocations.holding(p);
    if (value == nullptr || found == nullptr || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (found->kind == MemoryKind::kMapped) return CUDA_ERROR_NOT_SUPPORTED;
    unsigned flag = 0;
    std::memcpy(&flag, value, sizeof flag);
    found->sync_memops = flag != 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
