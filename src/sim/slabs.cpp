// First fit from the lowest address: what was freed last at the bottom is what comes back first, which gives
// callers the address reuse that real programs see. Under the state mutex.
#include "sim/slabs.hpp"

#include <algorithm>
#include <iterator>

#include "sim/arena.hpp"

namespace cupool::sim {
namespace {

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kSmallUnit - 1) / kSmallUnit * kSmallUnit; }

}  // namespace

CUdeviceptr Slabs::take(Arena& arena, std::uint64_t bytes) {
  const std::uint64_t need = rounded(bytes);
  for (auto& [base, slab] : slabs_) {
    for (auto hole = slab.free.begin(); hole != slab.free.end(); ++hole) {
      if (hole->second < need) continue;
      const auto [offset, size] = *hole;
      slab.free.erase(hole);
      if (size > need) slab.free[offset + need] = size - need;
      slab.used += need;
      return base + offset;
    }
  }
  const CUdeviceptr base = arena.take(1, true);
  if (base == 0) return 0;
  Slab& slab = slabs_[base];
  slab.free[need] = kGranule - need;
  slab.used = need;
  return base;
}

void Slabs::give(Arena& arena, CUdeviceptr p, std::uint64_t bytes) {
  const auto found = std::prev(slabs_.upper_bound(p));
  Slab& slab = found->second;
  std::uint64_t offset = p - found->first;
  std::uint64_t size = rounded(bytes);
  slab.used -= size;
  if (slab.used == 0) {
    arena.give(found->first, 1, true);
    slabs_.erase(found);
    return;
  }
  auto next = slab.free.lower_bound(offset);
  if (next != slab.free.end() && next->first == offset + size) {
    size += next->second;
    next = slab.free.erase(next);
  }
  if (next != slab.free.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += size;
  } else {
    slab.free[offset] = size;
  }
}

void Slabs::give_all(Arena& arena) {
  for (const auto& slab : slabs_) arena.give(slab.first, 1, true);
  slabs_.clear();
}

}  // namespace cupool::sim
