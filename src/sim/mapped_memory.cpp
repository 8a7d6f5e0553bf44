// The records of virtual memory management, and what mapping and unmapping do to them, to the oracle and to
// the address space. Under the state mutex.
#include "sim/mapped_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "sim/chunk_files.hpp"
#include "sim/lives.hpp"
#include "sim/options.hpp"
#include "sim/origin.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

int protection_of(CUmemAccess_flags flags) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      return PROT_READ;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return PROT_READ | PROT_WRITE;
    default:
      return PROT_NONE;
  }
}

void give_back(const PhysicalMemory& memory) {
  state().chunk_arena(memory.device).give_physical(memory.offset, granules_for(memory.bytes));
}

}  // namespace

MappedMemory& mapped_memory() {
  static MappedMemory* const kept = new MappedMemory;
  return *kept;
}

PhysicalMemory* find_physical(CUmemGenericAllocationHandle handle) {
  const auto found = mapped_memory().physical.find(handle);
  const bool held = found != mapped_memory().physical.end() && found->second.references > 0;
  return held ? &found->second : nullptr;
}

CUmemGenericAllocationHandle adopt_physical(PhysicalMemory memory) {
  MappedMemory& all = mapped_memory();
  memory.block_id = all.next_block_id++;
  const CUmemGenericAllocationHandle handle = all.next_handle++;
  all.physical[handle] = memory;
  state().note_usage();
  return handle;
}

void drop_physical_if_unused(CUmemGenericAllocationHandle handle) {
  auto& all = mapped_memory().physical;
  const auto found = all.find(handle);
  const PhysicalMemory& memory = found->second;
  if (memory.references > 0 || memory.mappings > 0) return;
  if (memory.imported) {
    close(memory.fd);
  } else if (memory.exported) {
    mapped_memory().lingering.push_back(memory);
    collect_lingering_chunks();
  } else {
    give_back(memory);
  }
  all.erase(found);
}

void collect_lingering_chunks() {
  std::erase_if(mapped_memory().lingering, [](const PhysicalMemory& memory) {
    if (exported_elsewhere(memory.fd, memory.offset, memory.bytes)) return false;
    give_back(memory);
    return true;
  });
}

Reservation reservation_of(CUdeviceptr p, std::uint64_t bytes) {
  const auto& all = mapped_memory().reserved;
  const auto next = all.upper_bound(p);
  if (next == all.begin()) return {};
  const auto& [base, size] = *std::prev(next);
  const std::uint64_t offset = p - base;
  return offset < size && bytes <= size - offset ? Reservation{base, size} : Reservation{};
}

bool map_chunk(CUdeviceptr p, std::uint64_t bytes, CUmemGenericAllocationHandle handle) {
  State& s = state();
  PhysicalMemory& memory = *find_physical(handle);
  if (!s.reservation_arena().map(p, bytes, memory.fd, memory.offset)) return false;
  ++memory.mappings;
  Allocation made;
  made.base = p;
  made.size = bytes;
  made.kind = MemoryKind::kMapped;
  made.device = memory.device;
  made.physical = handle;
  made.access.assign(s.devices.size(), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  own_life_begins(*s.allocations.adopt(made), "cuMemMap");
  if (options().oracle) s.oracle.mapping_begins(p, bytes, handle);
  return true;
}

void unmap_chunk(const Allocation& mapping) {
  State& s = state();
  const Allocation gone = mapping;
  s.oracle.mapping_ends(gone.base, "cuMemUnmap " + describe(present_origin()),
                        [&](TimelineId timeline, std::uint64_t position) {
                          return s.host.at(timeline) >= position || s.timelines[timeline].broken;
                        });
  own_life_ends(gone, "cuMemUnmap");
  s.allocations.forget(gone.base);
  Arena& arena = s.reservation_arena();
  if (gone.host_access != CU_MEM_ACCESS_FLAGS_PROT_NONE) arena.hide_from_host(gone.base, gone.size);
  arena.unmap(gone.base, gone.size);
  --mapped_memory().physical[gone.physical].mappings;
  drop_physical_if_unused(gone.physical);
}

bool set_host_access(Allocation& mapping, CUmemAccess_flags flags) {
  Arena& arena = state().reservation_arena();
  if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
    arena.hide_from_host(mapping.base, mapping.size);
  } else {
    const PhysicalMemory& memory = mapped_memory().physical[mapping.physical];
    if (!arena.show_to_host(mapping.base, mapping.size, protection_of(flags), memory.fd, memory.offset))
      return false;
  }
  mapping.host_access = flags;
  return true;
}

}  // namespace cupool::sim
