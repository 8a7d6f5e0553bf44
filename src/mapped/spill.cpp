// See spill.hpp.
#include "mapped/spill.hpp"

#include <algorithm>

#include "stats/device.hpp"

namespace cupool::mapped {

using driver::kInvalidValue;
using driver::kMappingStep;
using driver::kOutOfMemory;
using driver::kSuccess;

// Before the driver is asked, so that threads together keep within what the user allows.
bool Spill::book(uint64_t bytes, uint64_t most) {
  uint64_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (bytes > most || taken > most - bytes) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

Status Spill::allocate(size_t bytes, Address* out) {
  Block block;
  block.bytes = round_up(bytes, kMappingStep);
  size_t free = 0;
  size_t total = 0;
  const bool can_map = device_.device(&block.device) == kSuccess && mapping_.can_map(block.device) &&
                       device_.memory(&free, &total) == kSuccess;
  if (!can_map || !book(block.bytes, most_.of(total))) return kOutOfMemory;
  const Status status = fill(&block, out);
  if (status != kSuccess) {
    taken_.fetch_sub(block.bytes, std::memory_order_relaxed);
    // The program asked for device memory, and there is none.
    return kOutOfMemory;
  }
  stats::device(block.device).reserve(block.bytes);
  std::vector<int> guests;
  {
    // let_in() reads and writes these in the other order, so one of the two lets a new device in.
    Guard hold(lock_);
    blocks_[*out] = block;
    guests = guests_;
  }
  mapping_.allow(*out, block.bytes, guests.data(), guests.size(), driver::Mapping::Access::kReadWrite);
  return kSuccess;
}

Part Spill::chunk_at(Address address) {
  Guard hold(lock_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return {};
  --next;
  return address - next->first < next->second.bytes ? Part{next->first, next->second.bytes} : Part{};
}

// A block that leaves meanwhile is no longer mapped: the driver refuses, and nothing is lost.
void Spill::let_in(int device) {
  std::map<Address, Block> blocks;
  {
    Guard hold(lock_);
    if (std::find(guests_.begin(), guests_.end(), device) != guests_.end()) return;
    guests_.push_back(device);
    blocks = blocks_;
  }
  for (const auto& [start, block] : blocks)
    mapping_.allow(start, block.bytes, &device, 1, driver::Mapping::Access::kReadWrite);
}

Status Spill::fill(Block* block, Address* out) {
  Address at = 0;
  Status status = mapping_.reserve(block->bytes, &at);
  if (status != kSuccess) return status;
  status = mapping_.create(block->device, driver::Backing::kHost, block->bytes, &block->chunk);
  if (status == kSuccess) {
    status = mapping_.map(at, block->bytes, block->chunk);
    if (status == kSuccess) {
      status = mapping_.allow(at, block->bytes, &block->device, 1, driver::Mapping::Access::kReadWrite);
      if (status != kSuccess) mapping_.unmap(at, block->bytes);
    }
    if (status != kSuccess) mapping_.release(block->chunk);
  }
  if (status != kSuccess) mapping_.unreserve(at, block->bytes);
  *out = at;
  return status;
}

// Unmapping waits for nothing, but a release does (driver.hpp).
Status Spill::release_in(driver::Context context, Address start) {
  const Status status = device_.synchronize(context);
  return status == kSuccess ? take_away(start) : status;
}

// Only for a block that nobody has seen.
Status Spill::release(Address start) { return take_away(start); }

void Spill::drop(Address start) { take_away(start); }

Status Spill::take_away(Address start) {
  Block block;
  {
    Guard hold(lock_);
    const auto found = blocks_.find(start);
    if (found == blocks_.end()) return kInvalidValue;
    block = found->second;
  }
  const Status status = mapping_.unmap(start, block.bytes);
  if (status != kSuccess) return status;
  {
    // Before the addresses are free again: another thread may get them.
    Guard hold(lock_);
    blocks_.erase(start);
  }
  mapping_.release(block.chunk);
  mapping_.unreserve(start, block.bytes);
  taken_.fetch_sub(block.bytes, std::memory_order_relaxed);
  stats::device(block.device).release(block.bytes);
  return kSuccess;
}

}  // namespace cupool::mapped
