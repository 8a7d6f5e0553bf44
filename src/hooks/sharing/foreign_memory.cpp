// See foreign_memory.hpp.
#include "hooks/sharing/foreign_memory.hpp"

#include <vector>

#include "base/host_memory.hpp"
#include "base/own_call.hpp"
#include "hooks/state/serving.hpp"
#include "share/client.hpp"

namespace cupool::hooks {
namespace {

using cuda::real;
using driver::Chunk;
using driver::kMappingStep;
using driver::kSuccess;
using driver::Mapping;
using driver::Status;

// The chunks as they come. A handle of ours is needed only until the chunk is mapped.
class Chunks final : public share::Taker {
 public:
  ~Chunks() {
    for (const One& one : all_) mapping.release(one.chunk);
  }

  bool take(uint64_t bytes, uint64_t offset, int descriptor) override {
    constexpr uint64_t kMost = uint64_t{1} << 50;
    if (bytes == 0 || bytes % kMappingStep != 0 || bytes > kMost || bytes_ > kMost) return false;
    if (host::is_short()) {
      status_ = CUDA_ERROR_OUT_OF_MEMORY;
      return false;
    }
    Chunk chunk = Chunk::kNone;
    status_ = mapping.import_chunk(descriptor, &chunk);
    if (status_ != kSuccess) return false;
    all_.push_back({chunk, bytes});
    bytes_ += bytes;
    offset_ = offset;
    return true;
  }

  // Why it stopped.
  CUresult result() const { return status_ == kSuccess ? CUDA_ERROR_INVALID_VALUE : to_result(status_); }
  uint64_t bytes() const { return bytes_; }
  uint64_t offset() const { return offset_; }

  // As the driver's flag CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS says: another device's memory, if this one can
  // access it.
  bool can_be_seen_by(CUdevice device) const {
    const OwnCall guard;
    CUmemAllocationProp about = {};
    const auto first = static_cast<CUmemGenericAllocationHandle>(all_.front().chunk);
    if (real.cuMemGetAllocationPropertiesFromHandle(&about, first) != CUDA_SUCCESS) return true;
    if (about.location.type != CU_MEM_LOCATION_TYPE_DEVICE || about.location.id == device) return true;
    int can = 0;
    return real.cuDeviceCanAccessPeer(&can, device, about.location.id) == CUDA_SUCCESS && can != 0;
  }

  // Puts all of them at an address; if that fails none is there.
  Status map_at(CUdeviceptr start, CUdevice device) const {
    uint64_t done = 0;
    Status status = kSuccess;
    for (const One& one : all_) {
      status = mapping.map(start + done, one.bytes, one.chunk);
      if (status != kSuccess) break;
      done += one.bytes;
    }
    if (status == kSuccess) status = mapping.allow(start, bytes_, &device, 1, Mapping::Access::kReadWrite);
    if (status != kSuccess && done != 0) mapping.unmap(start, done);
    return status;
  }

 private:
  struct One {
    Chunk chunk;
    uint64_t bytes;
  };
  std::vector<One> all_;
  uint64_t bytes_ = 0;
  uint64_t offset_ = 0;
  Status status_ = kSuccess;
};

}  // namespace

CUresult map_foreign(const share::ExportToken& token, CUdevice device, ForeignMemory* out) {
  Chunks chunks;
  switch (share::fetch(token, chunks)) {
    case share::Fetched::kAll:
      break;
    case share::Fetched::kStopped:
      return chunks.result();
    case share::Fetched::kNoDescriptors:
      return CUDA_ERROR_OPERATING_SYSTEM;
    case share::Fetched::kRefused:  // the driver's answer where the exporter is no more
      return CUDA_ERROR_INVALID_HANDLE;
  }
  if (token.bytes > chunks.bytes() || chunks.offset() > chunks.bytes() - token.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!chunks.can_be_seen_by(device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  driver::Address start = 0;
  Status status = mapping.reserve(chunks.bytes(), &start);
  if (status != kSuccess) return to_result(status);
  status = chunks.map_at(start, device);
  if (status != kSuccess) {
    mapping.unreserve(start, chunks.bytes());
    return to_result(status);
  }
  *out = {start, chunks.bytes(), chunks.offset()};
  return CUDA_SUCCESS;
}

void unmap_foreign(const ForeignMemory& memory) {
  if (mapping.unmap(memory.start, memory.bytes) == kSuccess) mapping.unreserve(memory.start, memory.bytes);
}

void show_foreign(const ForeignMemory& memory, CUdevice device, bool allowed) {
  mapping.allow(memory.start, memory.bytes, &device, 1,
                allowed ? Mapping::Access::kReadWrite : Mapping::Access::kNone);
}

}  // namespace cupool::hooks
