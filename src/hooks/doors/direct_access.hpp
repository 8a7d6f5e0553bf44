// Whether a network card, a storage device or the CPU itself may access device memory outside of any stream
// (RDMA, GPUDirect Storage, GDRCopy). If so, memory is handed out only when the work of its old life is done,
// because such accesses wait for no stream. Checked after a library was loaded (loads.hpp) and where memory
// is prepared for such use.
#pragma once

namespace cupool::hooks {

// Looks at the libraries in the process.
void look_for_direct_access();

// The program prepares memory for such access, through whichever library.
void note_direct_access();

}  // namespace cupool::hooks
