// Entry points that share memory between processes. The memory lies in a file the other process opens through
// /proc, so sharing is real and needs no cleaning up. A handle names the allocation's start, whatever pointer
// was asked about; for small memory the place inside its slab is a field of its own; its last eight bytes are
// zero and nobody reads them. Waits as freeing does.
#include <cuda.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/format.hpp"
#include "sim/entry.hpp"
#include "sim/mapped_memory.hpp"

using namespace cupool::sim;

namespace {

constexpr std::uint64_t kMagic = 0x63757369'6d697063;

struct HandleFields {
  std::uint64_t magic;
  std::uint32_t process;
  std::uint32_t file;
  std::uint64_t inode;
  std::uint64_t segment;         // offset of the whole allocation, or of its slab, in the file
  std::uint64_t segment_bytes;   // in whole granules
  std::uint64_t offset_in_slab;  // 0 for memory above 1 MiB
  std::uint64_t size : 48;
  std::uint64_t issue : 16;  // no two handles are the same, not even of one allocation
  std::uint64_t unused;      // zero, ignored
};
static_assert(sizeof(HandleFields) == CU_IPC_HANDLE_SIZE);
static_assert(offsetof(HandleFields, unused) == 56);

std::uint64_t inode_of(int fd) {
  struct stat about = {};
  return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

int open_file_of(const HandleFields& fields) {
  char path[64];
  cupool::format_into(path, "/proc/{}/fd/{}", fields.process, fields.file);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd >= 0 && inode_of(fd) == fields.inode) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

Allocation* already_open(const HandleFields& fields) {
  Allocation* found = nullptr;
  state().allocations.each([&](Allocation& a) {
    if (a.kind == MemoryKind::kImported && a.file_inode == fields.inode &&
        a.physical_offset == fields.segment + fields.offset_in_slab) {
      found = &a;
    }
  });
  return found;
}

CUresult open_handle(Context& context, CUdeviceptr* out, const HandleFields& fields) {
  State& s = state();
  if (Allocation* const known = already_open(fields)) {
    if (known->context_id != context.id) return CUDA_ERROR_INVALID_HANDLE;
    ++known->opens;
    *out = known->base;
    return CUDA_SUCCESS;
  }
  const int fd = open_file_of(fields);
  if (fd < 0) return CUDA_ERROR_INVALID_HANDLE;
  Arena& arena = s.arena(context.device);
  const CUdeviceptr base = arena.reserve(fields.segment_bytes / kGranule, kGranule);
  const bool shown = base != 0 && arena.map(base, fields.segment_bytes, fd, fields.segment);
  close(fd);
  if (!shown) {
    if (base != 0) arena.unreserve(base, fields.segment_bytes / kGranule);
    return CUDA_ERROR_MAP_FAILED;
  }
  s.shared_with_processes = true;
  Allocation made;
  made.base = base + fields.offset_in_slab;
  made.size = fields.size;
  made.kind = MemoryKind::kImported;
  made.context_id = context.id;
  made.context = context.handle;
  made.device = context.device;
  made.opens = 1;
  made.import_slack = fields.offset_in_slab;
  made.granules = fields.segment_bytes / kGranule;
  made.file_inode = fields.inode;
  made.physical_offset = fields.segment + fields.offset_in_slab;
  s.allocations.adopt(made);
  *out = made.base;
  return CUDA_SUCCESS;
}

CUresult open_checked(Site& site, CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
  return in_context(site, [&](Context& context) -> CUresult {
    HandleFields fields;
    std::memcpy(&fields, &handle, sizeof fields);
    if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    const bool sound = fields.magic == kMagic && fields.segment_bytes != 0 &&
                       fields.segment_bytes % kGranule == 0 && fields.offset_in_slab < fields.segment_bytes;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    // The real driver refuses a process its own memory, with this code.
    if (fields.process == static_cast<std::uint32_t>(getpid())) return CUDA_ERROR_INVALID_CONTEXT;
    return open_handle(context, out, fields);
  });
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr p) {
  return in_context(SIM_SITE(cuIpcGetMemHandle), [&](Context&) -> CUresult {
    const Allocation* const found = state().allocations.holding(p);
    if (out == nullptr || found == nullptr || found->kind != MemoryKind::kDevice)
      return CUDA_ERROR_INVALID_VALUE;
    const Arena& arena = state().arena(found->device);
    const std::uint64_t place = arena.offset_of(found->base);
    HandleFields fields = {};
    fields.magic = kMagic;
    fields.process = static_cast<std::uint32_t>(getpid());
    fields.file = static_cast<std::uint32_t>(arena.fd());
    fields.inode = inode_of(arena.fd());
    fields.segment = place / kGranule * kGranule;
    fields.offset_in_slab = place % kGranule;
    fields.segment_bytes = (found->granules > 0 ? found->granules : 1) * kGranule;
    state().shared_with_processes = true;
    static std::uint16_t issued = 0;
    fields.size = found->size & ((std::uint64_t{1} << 48) - 1);
    fields.issue = ++issued;
    std::memcpy(out, &fields, sizeof fields);
    return CUDA_SUCCESS;
  });
}

// A file of the memory, as a dma-buf is one: whole pages of one allocation.
CUresult cuMemGetHandleForAddressRange(void* out, CUdeviceptr p, size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags) {
  return in_context(SIM_SITE(cuMemGetHandleForAddressRange), [&](Context&) -> CUresult {
    constexpr std::uint64_t kPage = 4096;
    const Allocation* const found = state().allocations.holding(p);
    const bool sound = out != nullptr && found != nullptr && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD &&
                       flags == 0 && bytes != 0 && p % kPage == 0 && bytes % kPage == 0;
    if (!sound || !state().allocations.holds(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
    const bool mapped = found->kind == MemoryKind::kMapped && !found->is_host_chunk();
    if (found->kind != MemoryKind::kDevice && !mapped) return CUDA_ERROR_NOT_SUPPORTED;
    const int lies_in =
        mapped ? mapped_memory().physical[found->physical].fd : state().arena(found->device).fd();
    const int file = fcntl(lies_in, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    state().shared_with_processes = true;
    std::memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return open_checked(SIM_SITE(cuIpcOpenMemHandle_v2), out, handle, flags);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return open_checked(SIM_SITE(cuIpcOpenMemHandle), out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
  return in_context(SIM_SITE(cuIpcCloseMemHandle), [&](Context& context) -> CUresult {
    State& s = state();
    const Allocation* const known = s.allocations.exact(p);
    if (known == nullptr || known->kind != MemoryKind::kImported) return CUDA_ERROR_INVALID_VALUE;
    complete(context_target(context));
    Allocation* const still = s.allocations.exact(p);
    if (still == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (--still->opens > 0) return CUDA_SUCCESS;
    s.allocations.end_import(p);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
