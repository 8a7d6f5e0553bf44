// See imports.hpp.
#include "hooks/imports.hpp"

#include <algorithm>
#include <bit>

#include "base/after_fork.hpp"
#include "base/host_memory.hpp"
#include "base/own_call.hpp"

namespace cupool::hooks {

using cuda::real;

constinit NoDestroy<Imports> detail::imports;
CUPOOL_AFTER_FORK(imports_after_fork, [] { imports.forget_after_fork(); });

namespace {

CUcontext current() {
  CUcontext context = nullptr;
  return real.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

}  // namespace

Imports::Mapping* Imports::mapping_of(CUcontext context, const driver::Handle& segment) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.context == context && mapping.segment == segment;
  });
  return found == mappings_.end() ? nullptr : &*found;
}

Imports::Block* Imports::block_at(CUdeviceptr address) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Block& block) { return address - block.start < block.bytes; });
  return found == blocks_.end() ? nullptr : &*found;
}

Imports::Mapping* Imports::map(const Opener& opener, CUcontext context, const driver::Handle& handle,
                               unsigned flags, CUresult* result) {
  CUdeviceptr start = 0;
  size_t bytes = 0;
  *result = opener(&start, std::bit_cast<CUipcMemHandle>(handle), flags);
  if (*result != CUDA_SUCCESS) return nullptr;
  real.cuMemGetAddressRange_v2(nullptr, &bytes, start);
  mappings_.push_back({context, handle, start, bytes});
  count_.store(mappings_.size(), std::memory_order_release);
  return &mappings_.back();
}

CUresult Imports::open(const Opener& opener, CUdeviceptr* out, const driver::Handle& handle,
                       const driver::Place& place, unsigned flags) {
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (host::is_short()) return CUDA_ERROR_OUT_OF_MEMORY;
  Guard hold(lock_);
  const OwnCall guard;
  CUcontext const context = current();
  CUresult result = CUDA_SUCCESS;
  Mapping* mapping = mapping_of(context, handle);
  if (mapping == nullptr) mapping = map(opener, context, handle, flags, &result);
  if (mapping == nullptr) return result;
  const CUdeviceptr start = mapping->start + place.offset;
  if (place.offset >= mapping->bytes || place.bytes > mapping->bytes - place.offset) {
    CUresult closed = CUDA_SUCCESS;
    unmap_if_unused(mapping->start, context, &closed);
    return CUDA_ERROR_INVALID_VALUE;
  }
  Block* block = block_at(start);
  if (block == nullptr || block->start != start || block->context != context) {
    blocks_.push_back({start, place.bytes, mapping->start, context, 0, {allocator::next_life()}});
    block = &blocks_.back();
  }
  ++block->opens;
  *out = start;
  return CUDA_SUCCESS;
}

void Imports::unmap_if_unused(CUdeviceptr start, CUcontext context, CUresult* result) {
  const auto is_part = [&](const auto& block) { return block.mapping == start && block.context == context; };
  if (std::any_of(blocks_.begin(), blocks_.end(), is_part)) return;
  CUcontext other = nullptr;
  const bool push = current() != context;
  if (push) real.cuCtxPushCurrent_v2(context);
  *result = real.cuIpcCloseMemHandle(start);
  if (push) real.cuCtxPopCurrent_v2(&other);
  std::erase_if(mappings_,
                [&](const Mapping& mapping) { return mapping.start == start && mapping.context == context; });
  count_.store(mappings_.size(), std::memory_order_release);
}

bool Imports::close(CUdeviceptr pointer, CUresult* result) {
  if (!any()) return false;
  Guard hold(lock_);
  const OwnCall guard;
  CUcontext const context = current();
  if (context == nullptr) return false;
  const auto opened_here = [&](const Block& block) {
    return block.start == pointer && block.context == context;
  };
  const auto opened = [&](const Block& block) { return block.start == pointer; };
  auto block = std::find_if(blocks_.begin(), blocks_.end(), opened_here);
  if (block == blocks_.end()) block = std::find_if(blocks_.begin(), blocks_.end(), opened);
  if (block == blocks_.end()) return false;
  *result = CUDA_SUCCESS;
  if (--block->opens > 0) return true;
  const CUdeviceptr mapping = block->mapping;
  CUcontext const owner = block->context;
  blocks_.erase(block);
  unmap_if_unused(mapping, owner, result);
  return true;
}

bool Imports::find(CUdeviceptr address, CUdeviceptr* start, size_t* bytes) {
  if (!any()) return false;
  Guard hold(lock_);
  *bytes = 0;
  if (const Block* block = block_at(address)) {
    *start = block->start;
    *bytes = block->bytes;
    return true;
  }
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [&](const Mapping& mapping) { return address - mapping.start < mapping.bytes; });
}

void Imports::forget(CUcontext context) {
  if (!any()) return;
  Guard hold(lock_);
  std::erase_if(blocks_, [&](const Block& block) { return block.context == context; });
  std::erase_if(mappings_, [&](const Mapping& mapping) { return mapping.context == context; });
  count_.store(mappings_.size(), std::memory_order_release);
}

void Imports::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  blocks_.clear();
  mappings_.clear();
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace cupool::hooks
