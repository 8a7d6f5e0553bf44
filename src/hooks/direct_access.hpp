// Whether a network card, a storage device or the CPU itself may reach device memory past every stream (RDMA,
// GPUDirect Storage, GDRCopy). Then memory is handed out only when the work of its old life is over, for what
// comes next may not wait for a stream. Looked for after a library was loaded (loads.hpp) and where memory is
// made ready for such use.
#pragma once

namespace cupool::hooks {

// Looks at the libraries in the process.
void look_for_direct_access();

// The program prepares memory for such access, whatever library does it.
void note_direct_access();

}  // namespace cupool::hooks
