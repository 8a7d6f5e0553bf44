// Blocks of mapped memory for other processes: tickets, and the descriptors that a ticket is exchanged for.
// Keeps no record of what was exported: a ticket names a block, and the block's mark says whether it still is
// the one that was exported.
#pragma once

#include "handover/ticket.hpp"
#include "hooks/blocks.hpp"

namespace cupool::hooks {

// Whether the driver exports the memory of a block.
bool can_lend(const Block& block);
// The ticket of a block that was tainted as exported. NOT_SUPPORTED: this process cannot give out its memory.
CUresult write_ticket(const Block& block, CUipcMemHandle* out);
// Whether this process wrote it.
bool is_own_ticket(const handover::Ticket& ticket);
// The driver is about to shut down: the thread makes no call any more.
void stop_lending();

}  // namespace cupool::hooks
