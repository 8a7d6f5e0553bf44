// The records of virtual memory management. Under the state mutex.
#include "sim/mapped_memory.hpp"

#include <unistd.h>

#include "sim/state.hpp"

namespace cupool::sim {

MappedMemory& mapped_memory() {
  static MappedMemory* const kept = new MappedMemory;
  return *kept;
}

void drop_physical_if_unused(CUmemGenericAllocationHandle handle) {
  auto& all = mapped_memory().physical;
  const auto found = all.find(handle);
  const PhysicalMemory& memory = found->second;
  if (memory.references > 0 || memory.mappings > 0) return;
  if (memory.imported) {
    close(memory.fd);
  } else {
    state().arena(memory.device).give_physical(memory.offset, granules_for(memory.bytes));
  }
  all.erase(found);
}

}  // namespace cupool::sim
