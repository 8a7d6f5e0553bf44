// See allocators.hpp.
#include "memory/allocators.hpp"

#include <new>

namespace cupool::memory {

DedicatedBlocks* Allocators::find_dedicated(const driver::Source& source) {
  for (auto& slot : dedicated_) {
    DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire);
    if (blocks != nullptr && &blocks->source() == &source) return blocks;
  }
  return nullptr;
}

DedicatedBlocks* Allocators::dedicated_of(driver::Source& source) {
  if (DedicatedBlocks* const blocks = find_dedicated(source)) return blocks;
  Guard hold(lock_);
  if (DedicatedBlocks* const blocks = find_dedicated(source)) return blocks;
  for (auto& slot : dedicated_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    auto* const made = new (std::nothrow) DedicatedBlocks(*driver_, source, order_, in_flight_);
    const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
    if (made != nullptr && max_cached != kFromOptions) made->set_max_cached(max_cached);
    slot.store(made, std::memory_order_release);
    return made;
  }
  return nullptr;
}

void Allocators::forget_stale(const DedicatedBlocks& owner, Address start, uint64_t bytes) {
  for_each_dedicated([&](DedicatedBlocks& other) {
    // (The block may be one that spilled: those have addresses of their own.)
    if (&other != &owner && !other.source().is_mapped()) other.forget(start, bytes);
  });
}

void Allocators::set_max_cached(uint64_t bytes) {
  max_cached_.store(bytes, std::memory_order_relaxed);
  for_each([&](Allocator& one) { one.set_max_cached(bytes); });
}

void Allocators::forget_after_fork() {
  lock_.reset_after_fork();
  pools_.forget_after_fork();
  for (auto& slot : dedicated_) slot.store(nullptr, std::memory_order_relaxed);
  set_native(nullptr, false);
}

}  // namespace cupool::memory
