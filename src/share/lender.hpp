// Gives other processes the memory of exported blocks, as descriptors of the chunks under them. Keeps no
// record of what was exported: an export token names a block, and the block's mark says whether it still is
// the one that was exported. Called on the thread of the server; holds no lock.
#pragma once

#include "driver/mapping.hpp"
#include "memory/memory.hpp"
#include "share/server.hpp"

namespace cupool::share {

class Lender final : public Source {
 public:
  constexpr Lender(memory::Memory& memory, driver::Mapping& mapping) : memory_(memory), mapping_(mapping) {}

  bool lend(const ExportToken& token, uint32_t first, uint32_t most, Loan* out) override;
  // Whether the driver exports the memory at an address.
  bool can_lend(driver::Address address);

 private:
  bool is_live(const ExportToken& token);
  bool fill(const ExportToken& token, uint32_t first, uint32_t most, Loan* out);
  int descriptor_at(driver::Address address);

  memory::Memory& memory_;
  driver::Mapping& mapping_;
};

}  // namespace cupool::share
