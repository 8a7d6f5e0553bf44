// See imports.hpp.
#include "hooks/sharing/imports.hpp"

#include <algorithm>
#include <bit>

#include "base/after_fork.hpp"
#include "base/host_memory.hpp"
#include "base/own_call.hpp"
#include "cuda/relaxed_capture.hpp"
#include "hooks/state/scoped_context.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

using cuda::real;

constinit NoDestroy<Imports> detail::imports;
CUPOOL_AFTER_FORK(imports_after_fork, [] { imports.forget_after_fork(); });

namespace {

CUcontext current() {
  CUcontext context = nullptr;
  return real.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// Closing a handle waits for the work of its context, as a free does, but is allowed while a stream captures.
// Unmapping waits for nothing, so a free of the driver's comes first: on a full device that of host memory,
// which takes longer but waits alike. (A synchronisation would end a capture in any mode.)
CUresult wait_as_a_close_does(CUcontext context) {
  const ScopedContext scope(context);
  const cuda::RelaxedCapture relaxed;
  CUdeviceptr waited = 0;
  CUresult result = real.cuMemAlloc_v2(&waited, 1);
  if (result == CUDA_SUCCESS) return real.cuMemFree_v2(waited);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  void* on_host = nullptr;
  result = real.cuMemHostAlloc(&on_host, 1, 0);
  return result == CUDA_SUCCESS ? real.cuMemFreeHost(on_host) : real.cuCtxSynchronize();
}

}  // namespace

Imports::Mapping* Imports::mapping_of(CUcontext context, const share::Handle& segment) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.context == context && mapping.segment == segment;
  });
  return found == mappings_.end() ? nullptr : &*found;
}

Imports::OpenedBlock* Imports::block_at(CUdeviceptr address) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const OpenedBlock& block) {
    return address - block.start < block.bytes;
  });
  return found == blocks_.end() ? nullptr : &*found;
}

CUresult Imports::map(const Opener& opener, CUcontext context, const share::Handle& handle, unsigned flags,
                      Mapping* out) {
  CUdeviceptr start = 0;
  size_t bytes = 0;
  const CUresult result = opener(&start, std::bit_cast<CUipcMemHandle>(handle), flags);
  if (result != CUDA_SUCCESS) return result;
  real.cuMemGetAddressRange_v2(nullptr, &bytes, start);
  *out = {context, handle, start, bytes};
  Guard hold(lock_);
  mappings_.push_back(*out);
  count_.store(mappings_.size(), std::memory_order_release);
  return CUDA_SUCCESS;
}

bool Imports::find_mapping(CUcontext context, const share::Handle& handle, Mapping* out) {
  Guard hold(lock_);
  const Mapping* const found = mapping_of(context, handle);
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

CUresult Imports::open(const Opener& opener, CUdeviceptr* out, const share::Handle& handle,
                       const share::Place& place, unsigned flags) {
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (host::is_short()) return CUDA_ERROR_OUT_OF_MEMORY;
  Guard one_at_a_time(changing_);
  const OwnCall guard;
  CUcontext const context = current();
  Mapping mapping{};
  if (!find_mapping(context, handle, &mapping)) {
    const CUresult result = map(opener, context, handle, flags, &mapping);
    if (result != CUDA_SUCCESS) return result;
  }
  if (place.offset >= mapping.bytes || place.bytes > mapping.bytes - place.offset) {
    bool is_unused = false;
    {
      Guard hold(lock_);
      is_unused = take_unused_locked(mapping.start, context, &mapping);
    }
    if (is_unused) unmap(mapping);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUdeviceptr start = mapping.start + place.offset;
  Guard hold(lock_);
  OpenedBlock* block = block_at(start);
  if (block == nullptr || block->start != start || block->context != context) {
    blocks_.push_back({start, place.bytes, mapping.start, context, 0, {allocator::next_life()}});
    block = &blocks_.back();
  }
  ++block->opens;
  *out = start;
  return CUDA_SUCCESS;
}

// ---- Export tokens.

Imports::Mapping* Imports::mapping_at(CUdeviceptr start, CUcontext context) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.start == start && mapping.context == context;
  });
  return found == mappings_.end() ? nullptr : &*found;
}

// True: it was open already; the result says whether this context may have it.
bool Imports::open_again_locked(CUcontext context, const share::Handle& handle, CUdeviceptr* out,
                                CUresult* result) {
  const auto known = std::find_if(mappings_.begin(), mappings_.end(),
                                  [&](const Mapping& mapping) { return mapping.segment == handle; });
  if (known == mappings_.end()) return false;
  *result = CUDA_ERROR_INVALID_HANDLE;  // the driver's answer to a second context
  if (known->context != context) return true;
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const OpenedBlock& one) {
    return one.mapping == known->start && one.context == context;
  });
  ++block->opens;
  *out = block->start;
  *result = CUDA_SUCCESS;
  return true;
}

CUresult Imports::open(CUdeviceptr* out, const share::Handle& handle, const share::ExportToken& token) {
  if (host::is_short()) return CUDA_ERROR_OUT_OF_MEMORY;
  const OwnCall guard;
  CUcontext const context = current();
  CUdevice device = 0;
  CUresult result = real.cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  {
    Guard hold(lock_);
    if (open_again_locked(context, handle, out, &result)) return result;
  }
  ForeignMemory made;
  result = map_foreign(token, device, &made);
  if (result != CUDA_SUCCESS) return result;
  {
    Guard hold(lock_);
    // Another thread may have been faster.
    if (!open_again_locked(context, handle, out, &result)) {
      *out = made.start + made.offset;
      mappings_.push_back({context, handle, made.start, made.bytes, true});
      count_.store(mappings_.size(), std::memory_order_release);
      blocks_.push_back({*out, token.bytes, made.start, context, 1, {allocator::next_life()}});
      // Set access after the mapping is on the list: apply_access() finds it there if it runs meanwhile.
      for (const int peer : memory.pools().peers_of(reinterpret_cast<driver::Context>(context)))
        show_foreign(made, peer, true);
      return CUDA_SUCCESS;
    }
  }
  unmap_foreign(made);
  return result;
}

// Called under the lock, so that the last call to the driver has the latest rights.
void Imports::apply_access(CUcontext context, CUdevice device) {
  if (!any()) return;
  const CancelShield shield;
  Guard hold(lock_);
  const auto peers = memory.pools().peers_of(reinterpret_cast<driver::Context>(context));
  const bool allowed = std::find(peers.begin(), peers.end(), device) != peers.end();
  for (const Mapping& mapping : mappings_) {
    if (mapping.chunks && mapping.context == context) show_foreign(mapping.foreign(), device, allowed);
  }
}

void Imports::ended(CUcontext context) {
  if (!any()) return;
  const CancelShield shield;
  Guard hold(lock_);
  std::erase_if(blocks_, [&](const OpenedBlock& block) { return block.context == context; });
  std::erase_if(mappings_, [&](const Mapping& mapping) {
    if (mapping.context != context) return false;
    if (mapping.chunks) unmap_foreign(mapping.foreign());
    return true;
  });
  count_.store(mappings_.size(), std::memory_order_release);
}

// ---- Closing.

// Takes a mapping without blocks off the list. Done before the driver closes it: afterwards the driver may
// give its addresses to another allocation.
bool Imports::take_unused_locked(CUdeviceptr start, CUcontext context, Mapping* out) {
  const auto is_part = [&](const auto& block) { return block.mapping == start && block.context == context; };
  const Mapping* const found = mapping_at(start, context);
  if (found == nullptr || std::any_of(blocks_.begin(), blocks_.end(), is_part)) return false;
  *out = *found;
  std::erase_if(mappings_, [&](const Mapping& one) { return one.start == start && one.context == context; });
  count_.store(mappings_.size(), std::memory_order_release);
  return true;
}

CUresult Imports::unmap(const Mapping& mapping) {
  if (mapping.chunks) {
    unmap_foreign(mapping.foreign());
    return CUDA_SUCCESS;
  }
  const ScopedContext scope(mapping.context);
  return real.cuIpcCloseMemHandle(mapping.start);
}

// The block that was opened at a pointer; one of this context is preferred.
std::vector<Imports::OpenedBlock>::iterator Imports::opened_locked(CUdeviceptr pointer, CUcontext context) {
  const auto opened_here = [&](const OpenedBlock& block) {
    return block.start == pointer && block.context == context;
  };
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), opened_here);
  if (found != blocks_.end()) return found;
  return std::find_if(blocks_.begin(), blocks_.end(),
                      [&](const OpenedBlock& block) { return block.start == pointer; });
}

CUcontext Imports::last_user(CUdeviceptr pointer, CUcontext context) {
  Guard hold(lock_);
  const auto block = opened_locked(pointer, context);
  return block == blocks_.end() || block->opens > 1 ? nullptr : block->context;
}

bool Imports::has_opened(CUdeviceptr pointer, CUcontext context) {
  Guard hold(lock_);
  return opened_locked(pointer, context) != blocks_.end();
}

bool Imports::close(CUdeviceptr pointer, CUresult* result) {
  if (!any()) return false;
  const OwnCall guard;
  CUcontext const context = current();
  if (context == nullptr || !has_opened(pointer, context)) return false;
  if (CUcontext const user = last_user(pointer, context); user != nullptr) {
    *result = wait_as_a_close_does(user);
    if (*result != CUDA_SUCCESS) return true;
  }
  Guard one_at_a_time(changing_);
  Mapping mapping{};
  bool is_unused = false;
  {
    Guard hold(lock_);
    const auto block = opened_locked(pointer, context);
    if (block == blocks_.end()) return false;
    if (--block->opens == 0) {
      const OpenedBlock last = *block;
      blocks_.erase(block);
      is_unused = take_unused_locked(last.mapping, last.context, &mapping);
    }
  }
  *result = is_unused ? unmap(mapping) : CUDA_SUCCESS;
  return true;
}

bool Imports::find(CUdeviceptr address, Found* out) {
  if (!any()) return false;
  Guard hold(lock_);
  if (const OpenedBlock* block = block_at(address)) {
    *out = {block->start, block->bytes, mapping_at(block->mapping, block->context)->chunks, block->context};
    return true;
  }
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [&](const Mapping& mapping) { return address - mapping.start < mapping.bytes; });
}

void Imports::forget(CUcontext context) {
  if (!any()) return;
  Guard hold(lock_);
  // Chunks stay until the work of the context has ended with it.
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const bool goes = at->context == context && !mapping_at(at->mapping, context)->chunks;
    at = goes ? blocks_.erase(at) : std::next(at);
  }
  std::erase_if(mappings_,
                [&](const Mapping& mapping) { return mapping.context == context && !mapping.chunks; });
  count_.store(mappings_.size(), std::memory_order_release);
}

void Imports::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  changing_.reset_after_fork();
  lock_.reset_after_fork();
  blocks_.clear();
  mappings_.clear();
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace cupool::hooks
