// Memory of another process, mapped into this one for an export token: its chunks are fetched, given
// addresses and shown to a device. The driver neither knows this as an opened handle nor ends it with a
// context: whoever maps it unmaps it. No state, no lock.
#pragma once

#include "cuda/real.hpp"
#include "share/export_token.hpp"

namespace cupool::hooks {

// Chunks of another process, side by side.
struct ForeignMemory {
  CUdeviceptr start = 0;
  size_t bytes = 0;
  size_t offset = 0;  // of the block
};

// Maps the chunks under the block for a device of this process. INVALID_VALUE: no process serves this export
// token.
CUresult map_foreign(const share::ExportToken& token, CUdevice device, ForeignMemory* out);
// pre: no work uses it any more.
void unmap_foreign(const ForeignMemory& memory);
// Grants or withdraws access for one more device.
void show_foreign(const ForeignMemory& memory, CUdevice device, bool allowed);

}  // namespace cupool::hooks
