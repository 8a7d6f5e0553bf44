// Queries about a pointer: its range, its attributes, a handle for it. For a block of ours the answer is that
// of a separate allocation: the driver is asked first (it validates the call and knows the device), then its
// answer for the segment is corrected to the block. An address in our memory that lies in no block gets the
// driver's answer for an unknown pointer.
#include <cstring>

#include "base/log.hpp"
#include "hooks/doors/direct_access.hpp"
#include "hooks/sharing/blocks.hpp"
#include "hooks/sharing/lending.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/submit/forward.hpp"

namespace cupool::hooks {

using cuda::real;
using memory::Mark;
using memory::Taint;
using stats::Counter;

namespace {

template <typename T>
void put(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
}

// The mapping that the driver would have made for the block: steps of 2 MiB, shared by blocks of up to 1 MiB.
FoundBlock mapping_of(const FoundBlock& block) {
  constexpr size_t kStep = 2 << 20;
  const CUdeviceptr shared = block.start & ~CUdeviceptr{kStep - 1};
  const bool fits = block.start + block.bytes <= shared + kStep;
  if (block.bytes <= kStep / 2 && fits) return {shared, kStep};
  return {block.start, (block.bytes + kStep - 1) & ~(kStep - 1)};
}

// Corrects attributes that the driver answers differently for mapped memory than for cuMemAlloc's. True:
// nothing else has to be corrected.
bool correct_mapped(void* data, CUpointer_attribute attribute, const FoundBlock& block) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put<uintptr_t>(data, reinterpret_cast<uintptr_t>(block.context));
      return true;
    // Under an export token (ipc.cpp); what another process has exported is not exported again.
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put<unsigned>(data, !block.imported && can_lend(block) ? 1 : 0);
      return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      if (block.imported) put<unsigned>(data, 0);
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put<unsigned long long>(data, 0);
      return true;
    // Even a block that spilled to host memory counts as device memory.
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put<unsigned>(data, CU_MEMORYTYPE_DEVICE);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      if (int device = 0; memory.device_of(block.context, &device)) put<int>(data, device);
      return true;
    default:
      return false;
  }
}

// Replaces the segment's attribute by the block's.
void correct(void* data, CUpointer_attribute attribute, CUdeviceptr pointer, const FoundBlock& block) {
  if (block.mapped && correct_mapped(data, attribute, block)) return;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(data, block.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(data, block.bytes);
    // Blocks cut from one segment, and two lives of one block, are different allocations.
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return with_mark(pointer, [&](const Mark& mark) { put<unsigned long long>(data, mark.life); });
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put<CUdeviceptr>(data, mapping_of(block).start);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<size_t>(data, mapping_of(block).bytes);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      if (block.dedicated) return;
      return with_mark(pointer, [&](const Mark& mark) { put<unsigned>(data, mark.sync_memops ? 1 : 0); });
    default:
      return;
  }
}

// A holder of peer-to-peer tokens can access the memory for as long as it exists.
void before_asking(CUpointer_attribute attribute, CUdeviceptr pointer, const FoundBlock& block) {
  // There are none for mapped memory.
  if (attribute != CU_POINTER_ATTRIBUTE_P2P_TOKENS || block.mapped) return;
  if (!block.imported) memory.taint(pointer, Taint::kPeerTokens);
  note_direct_access();
  memory.drain_before_export(pointer);
}

// The driver keeps the attribute per segment. Once one block wants synchronous copies, all blocks of its
// segment get them for good: slower, not wrong, and the segment is not used again.
CUresult set_sync_memops(const void* value, CUdeviceptr pointer, const FoundBlock& block) {
  unsigned wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  unsigned before = 0;
  CUresult result;
  // The driver does not do it for mapped memory, and a block cannot leave its address.
  if (wanted != 0 && block.mapped) {
    stats::count(stats::Event::refused_for_mapping);
    static constinit log::Once once;
    if (once.first())
      log::line("SYNC_MEMOPS cannot be set on mapped memory; CUPOOL_SEGMENTS=driver allows it");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (wanted != 0) {
    if (!block.imported) memory.taint(pointer, Taint::kSyncMemops);
    note_direct_access();
    memory.drain_before_export(pointer);
  }
  if (wanted != 0 || block.dedicated) {
    result = call_guarded(real.cuPointerSetAttribute, value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer);
  } else {
    result = call_guarded(real.cuPointerGetAttribute, &before, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer);
  }
  if (result == CUDA_SUCCESS) with_mark(pointer, [&](Mark& mark) { mark.sync_memops = wanted != 0; });
  return result;
}

// For calls about the program's own mappings: our mapped blocks must look unknown to them.
CUdeviceptr unknown_if_ours(CUdeviceptr pointer) {
  FoundBlock block;
  const Whose whose = look_up(pointer, &block);
  const bool is_hidden = whose == Whose::kNotLive || (whose == Whose::kBlock && block.mapped);
  return is_hidden ? kUnknownAddress : pointer;
}

void* unknown_if_ours(void* address) {
  return reinterpret_cast<void*>(unknown_if_ours(reinterpret_cast<CUdeviceptr>(address)));
}

}  // namespace

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  FoundBlock block;
  const Whose whose = look_up(pointer, &block);
  const CUdeviceptr asked = whose == Whose::kNotLive ? kUnknownAddress : pointer;
  const CUresult result =
      forward(Counter::pointer_questions, real.cuMemGetAddressRange_v2, base, bytes, asked);
  if (result != CUDA_SUCCESS || whose != Whose::kBlock) return result;
  if (base != nullptr) *base = block.start;
  if (bytes != nullptr) *bytes = block.bytes;
  return result;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  FoundBlock block;
  const Whose whose = look_up(pointer, &block);
  if (whose == Whose::kBlock) before_asking(attribute, pointer, block);
  const CUdeviceptr asked = whose == Whose::kNotLive ? kUnknownAddress : pointer;
  const CUresult result =
      forward(Counter::pointer_questions, real.cuPointerGetAttribute, data, attribute, asked);
  if (result == CUDA_SUCCESS && whose == Whose::kBlock && data != nullptr)
    correct(data, attribute, pointer, block);
  return result;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) {
  FoundBlock block;
  const Whose whose = look_up(pointer, &block);
  for (unsigned i = 0; whose == Whose::kBlock && attributes != nullptr && i < count; ++i) {
    before_asking(attributes[i], pointer, block);
  }
  const CUdeviceptr asked = whose == Whose::kNotLive ? kUnknownAddress : pointer;
  const CUresult result =
      forward(Counter::pointer_questions, real.cuPointerGetAttributes, count, attributes, data, asked);
  if (result != CUDA_SUCCESS || whose == Whose::kDrivers) return result;
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) continue;
    if (whose == Whose::kBlock) correct(data[i], attributes[i], pointer, block);
    // The driver echoes an unknown pointer as the host pointer, or gives none.
    CUdeviceptr told = 0;
    if (whose != Whose::kNotLive || attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER) continue;
    std::memcpy(&told, data[i], sizeof told);
    if (told == kUnknownAddress) put<CUdeviceptr>(data[i], pointer);
  }
  return result;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  FoundBlock block;
  const Whose whose = look_up_lasting(pointer, &block);
  if (whose == Whose::kBlock && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && value != nullptr) {
    return tell_forwarded(cuda::Call::cuPointerSetAttribute, set_sync_memops(value, pointer, block));
  }
  // The driver refuses all attributes of mapped memory with one error, and those of cuMemAlloc's with the
  // error for an unknown address, which is what the program must get.
  const bool is_strange = whose == Whose::kNotLive || (whose == Whose::kBlock && block.mapped);
  return forward(real.cuPointerSetAttribute, value, attribute, is_strange ? kUnknownAddress : pointer);
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags) {
  FoundBlock block;
  Whose whose = look_up_lasting(pointer, &block);
  if (whose == Whose::kBlock && bytes > block.start + block.bytes - pointer) whose = Whose::kNotLive;
  if (whose == Whose::kBlock && !block.imported && bytes != 0) {
    memory.taint(pointer, Taint::kDmaBuf);
    note_direct_access();
    memory.drain_before_export(pointer);
  }
  const CUdeviceptr asked = whose == Whose::kNotLive ? kUnknownAddress : pointer;
  return forward(real.cuMemGetHandleForAddressRange, handle, asked, bytes, type, flags);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return forward(real.cuMemRetainAllocationHandle, handle, unknown_if_ours(address));
}

// The driver reports no access rights for cuMemAlloc's memory.
CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  FoundBlock block;
  const bool is_hidden = look_up(pointer, &block) == Whose::kNotLive || (block.mapped && block.imported);
  const CUresult result =
      forward(real.cuMemGetAccess, flags, location, is_hidden ? kUnknownAddress : pointer);
  if (result == CUDA_SUCCESS && block.mapped) *flags = 0;
  return result;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* rights, size_t count) {
  return forward(real.cuMemSetAccess, unknown_if_ours(pointer), bytes, rights, count);
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  return forward(real.cuMemUnmap, unknown_if_ours(pointer), bytes);
}

// The driver takes mapped memory for host memory, too, and managed memory that we keep for live.
CUresult cuMemHostGetFlags(unsigned* flags, void* address) {
  return forward(real.cuMemHostGetFlags, flags, unknown_if_ours(address));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* address, unsigned flags) {
  return forward(real.cuMemHostGetDevicePointer_v2, pointer, unknown_if_ours(address), flags);
}

}  // namespace cupool::hooks
