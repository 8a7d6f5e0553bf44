// Gives other processes the memory of exported blocks, as descriptors of the chunks under them. Keeps no
// record of what was exported: a ticket names a block, and the block's mark says whether it still is the one
// that was exported. Called on the thread of the server; holds no lock.
#pragma once

#include "driver/mapping.hpp"
#include "handover/server.hpp"
#include "memory/memory.hpp"

namespace cupool::memory {

class Lender final : public handover::Source {
 public:
  constexpr Lender(Memory& memory, driver::Mapping& mapping) : memory_(memory), mapping_(mapping) {}

  bool lend(const handover::Ticket& ticket, uint32_t first, uint32_t most, handover::Loan* out) override;
  // Whether the driver exports the memory at an address.
  bool can_lend(Address address);

 private:
  bool is_live(const handover::Ticket& ticket);
  bool fill(const handover::Ticket& ticket, uint32_t first, uint32_t most, handover::Loan* out);
  int descriptor_at(Address address);

  Memory& memory_;
  driver::Mapping& mapping_;
};

}  // namespace cupool::memory
