// Blocks of mapped memory for other processes: the process's one server of export tokens, and what it lends.
// Nothing runs before the first export token is written.
#pragma once

#include "hooks/sharing/blocks.hpp"
#include "share/export_token.hpp"

namespace cupool::hooks {

// Whether the driver exports the memory of a block.
bool can_lend(const FoundBlock& block);
// The export token of a block that was tainted as exported. NOT_SUPPORTED: this process cannot give out its
// memory.
CUresult write_export_token(const FoundBlock& block, CUipcMemHandle* out);
// Whether this process wrote it.
bool is_own_export_token(const share::ExportToken& token);
// The driver is about to shut down: the thread makes no call any more.
void stop_lending();

}  // namespace cupool::hooks
