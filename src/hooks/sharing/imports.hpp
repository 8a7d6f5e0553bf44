// Blocks of other processes that were opened through sealed handles or export tokens. For a sealed handle the
// driver maps a whole segment once for each context; any number of blocks of it are opened and closed in any
// order, and the last one closed ends the mapping. For an export token we map the chunks of one block, and
// unmap them. Blocks opened under the driver's own handles are left to the driver. All state is under
// `lock_`. `changing_`, taken before it, is held across the driver's open and close of a segment, so that
// there is one mapping at a time; `lock_` is not, for a close waits for work, and a look-up may come from the
// call that this work needs. Nor is either held while another process is asked for chunks, or while work is
// waited for before they are unmapped.
#pragma once

#include <atomic>
#include <vector>

#include "allocator/marks.hpp"
#include "base/lock.hpp"
#include "base/no_destroy.hpp"
#include "cuda/real.hpp"
#include "hooks/sharing/foreign_memory.hpp"
#include "share/sealed_handle.hpp"

namespace cupool::hooks {

class Imports {
 public:
  using Opener = cuda::Entry<decltype(&::cuIpcOpenMemHandle_v2)>;

  constexpr Imports() = default;

  // `handle` is the driver's handle of the segment. The current context gets the mapping.
  CUresult open(const Opener& opener, CUdeviceptr* out, const share::Handle& handle,
                const share::Place& place, unsigned flags);
  // The same for an export token, whose bytes are `handle`. pre: a context is current.
  CUresult open(CUdeviceptr* out, const share::Handle& handle, const share::ExportToken& token);
  // False: not a mapping of ours, ask the driver. Else the result is in `result`.
  bool close(CUdeviceptr pointer, CUresult* result);

  // Whether any mapping is open.
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  // Whether an address lies in a mapping of ours, and if so the block that holds it (0 bytes: none).
  struct Found {
    CUdeviceptr start = 0;
    size_t bytes = 0;
    bool chunks = false;          // made of them
    CUcontext context = nullptr;  // that opened it
  };
  bool find(CUdeviceptr address, Found* out);
  // Calls `f(Mark&)` for the block that holds `address`.
  template <typename F>
  bool with_mark(CUdeviceptr address, F&& f) {
    if (!any()) return false;
    Guard hold(lock_);
    OpenedBlock* block = block_at(address);
    if (block == nullptr) return false;
    f(block->mark);
    return true;
  }

  // After Memory::set_access(): a device may access the memory of a context, or no longer. The driver's own
  // mappings follow by themselves.
  void apply_access(CUcontext context, CUdevice device);

  // A context is about to end, and has ended.
  void forget(CUcontext context);
  void ended(CUcontext context);
  void forget_after_fork();

 private:
  struct Mapping {
    CUcontext context;
    share::Handle segment;  // the exporter's name of it
    CUdeviceptr start;
    size_t bytes;
    bool chunks = false;  // mapped by us, for an export token

    ForeignMemory foreign() const { return {start, bytes}; }
  };
  struct OpenedBlock {
    CUdeviceptr start;
    size_t bytes;
    CUdeviceptr mapping;  // its start
    CUcontext context;
    unsigned opens;
    allocator::Mark mark;
  };

  Mapping* mapping_of(CUcontext context, const share::Handle& segment) CUPOOL_REQUIRES(lock_);
  bool find_mapping(CUcontext context, const share::Handle& handle, Mapping* out) CUPOOL_EXCLUDES(lock_);
  CUresult map(const Opener& opener, CUcontext context, const share::Handle& handle, unsigned flags,
               Mapping* out) CUPOOL_REQUIRES(changing_) CUPOOL_EXCLUDES(lock_);
  bool take_unused_locked(CUdeviceptr start, CUcontext context, Mapping* out) CUPOOL_REQUIRES(lock_);
  static CUresult unmap(const Mapping& mapping);
  bool has_opened(CUdeviceptr pointer, CUcontext context) CUPOOL_EXCLUDES(lock_);
  OpenedBlock* block_at(CUdeviceptr address) CUPOOL_REQUIRES(lock_);
  std::vector<OpenedBlock>::iterator opened_locked(CUdeviceptr pointer, CUcontext context)
      CUPOOL_REQUIRES(lock_);
  Mapping* mapping_at(CUdeviceptr start, CUcontext context) CUPOOL_REQUIRES(lock_);
  bool open_again_locked(CUcontext context, const share::Handle& handle, CUdeviceptr* out, CUresult* result)
      CUPOOL_REQUIRES(lock_);
  // The context whose work the driver would wait for in the last close of a block: we do so before a lock is
  // held. Null: it is not the last.
  CUcontext last_user(CUdeviceptr pointer, CUcontext context);

  std::atomic<size_t> count_{0};  // of mappings; programs without any pay one load
  Lock changing_ CUPOOL_ACQUIRED_BEFORE(lock_){Rank::kImportsChanging};
  Lock lock_{Rank::kImports};
  std::vector<Mapping> mappings_ CUPOOL_GUARDED_BY(lock_);
  std::vector<OpenedBlock> blocks_ CUPOOL_GUARDED_BY(lock_);
};

namespace detail {
extern constinit NoDestroy<Imports> imports;
}
inline constexpr Imports& imports = detail::imports.value;

}  // namespace cupool::hooks
