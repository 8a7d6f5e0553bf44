// Small memory from the context's slabs, large on its own granules. Under the state mutex.
// Must not wait for work and must not touch the oracle: both belong to the entry points.
#include "sim/allocations.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "sim/arena.hpp"
#include "sim/managed.hpp"
#include "sim/origin.hpp"
#include "sim/state.hpp"

namespace cupool::sim {

Allocation* Allocations::create(Context& current, std::uint64_t bytes, MemoryKind kind) {
  Context& context = current.memory_owner();
  Arena& arena = state().arena(context.device);
  // Managed memory is protected page by page and pooled memory outlives its context's slabs: both get
  // granules.
  const bool small = bytes <= kSmallLimit && kind == MemoryKind::kDevice;
  if (bytes > arena.capacity()) return nullptr;
  Allocation fresh;
  fresh.granules = small ? 0 : granules_for(bytes);
  fresh.base = small ? context.slabs.take(arena, bytes) : arena.take(fresh.granules, false);
  if (fresh.base == 0) return nullptr;
  fresh.size = bytes;
  fresh.kind = kind;
  fresh.context_id = context.id;
  fresh.context = context.handle;
  fresh.device = context.device;
  state().note_usage();
  Counters& counters = state().counters;
  if (kind == MemoryKind::kDevice) counters.asked_bytes += bytes;
  counters.peak_asked_bytes = std::max(counters.peak_asked_bytes, counters.asked_bytes);
  return adopt(fresh);
}

Allocation* Allocations::adopt(const Allocation& allocation) {
  Allocation& kept = by_base_[allocation.base] = allocation;
  kept.buffer_id = next_buffer_id_++;
  return &kept;
}

void Allocations::destroy(CUdeviceptr base) {
  const auto found = by_base_.find(base);
  const Allocation gone = found->second;
  by_base_.erase(found);
  Arena& arena = state().arena(gone.device);
  if (gone.kind == MemoryKind::kDevice) state().counters.asked_bytes -= gone.size;
  if (gone.kind == MemoryKind::kManaged) hide_managed(gone);
  if (gone.granules > 0) {
    arena.give(gone.base, gone.granules, false);
  } else if (const auto owner = state().context_by_id(gone.context_id)) {
    owner->slabs.give(arena, gone.base, gone.size);
  }
  state().note_usage();
}

void Allocations::end_import(CUdeviceptr base) {
  const Allocation& import = by_base_.at(base);
  const CUdeviceptr mapping = base - import.import_slack;
  Arena& arena = state().arena(import.device);
  arena.unmap(mapping, import.granules * kGranule);
  arena.unreserve(mapping, import.granules);
  forget(base);
}

void Allocations::destroy_context(Context& context) {
  std::vector<CUdeviceptr> own;
  std::vector<CUdeviceptr> imports;
  for (const auto& [base, allocation] : by_base_) {
    if (allocation.context_id != context.id) continue;
    if (allocation.kind == MemoryKind::kDevice || allocation.kind == MemoryKind::kManaged)
      own.push_back(base);
    if (allocation.kind == MemoryKind::kImported) imports.push_back(base);
  }
  for (const CUdeviceptr base : own) destroy(base);
  for (const CUdeviceptr base : imports) end_import(base);
  context.slabs.give_all(state().arena(context.device));
}

Allocation* Allocations::exact(CUdeviceptr base) {
  const auto found = by_base_.find(base);
  return found == by_base_.end() ? nullptr : &found->second;
}

Allocation* Allocations::holding(CUdeviceptr p) {
  auto next = by_base_.upper_bound(p);
  if (next == by_base_.begin()) return nullptr;
  Allocation& candidate = std::prev(next)->second;
  return p < candidate.base + candidate.size ? &candidate : nullptr;
}

bool Allocations::holds(CUdeviceptr p, std::uint64_t bytes) {
  // Mapped memory may run over several mappings that touch each other.
  while (true) {
    Allocation* const found = holding(p);
    if (found == nullptr) return false;
    const std::uint64_t left = found->base + found->size - p;
    if (bytes <= left) return true;
    if (found->kind != MemoryKind::kMapped) return false;
    p += left;
    bytes -= left;
  }
}

bool Allocations::mapped_for(int device, CUdeviceptr p, std::uint64_t bytes, Touch touch) {
  const CUdeviceptr end = p + std::max<std::uint64_t>(bytes, 1);
  while (p < end) {
    const Allocation* const found = holding(p);
    if (found == nullptr || found->kind != MemoryKind::kMapped) return false;
    const auto given = static_cast<unsigned>(found->access[static_cast<std::size_t>(device)]);
    const auto needed = static_cast<unsigned>(touch);
    if ((given & needed) != needed) return false;
    p = found->base + found->size;
  }
  return true;
}

CUdeviceptr reserve_for_driver(const Context& context, std::uint64_t bytes) {
  Arena& arena = state().arena(context.device);
  const CUdeviceptr base = bytes > arena.capacity() ? 0 : arena.take(granules_for(bytes), false);
  if (base == 0) note_refusal();
  state().note_usage();
  return base;
}

}  // namespace cupool::sim
