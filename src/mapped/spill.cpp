// See spill.hpp. A chunk is in `open_` only while it has a free slot, another block may lie beside its own,
// and all devices that may access it have been let in.
#include "mapped/spill.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/log.hpp"
#include "stats/device.hpp"

namespace cupool::mapped {

using driver::kInvalidValue;
using driver::kMappingStep;
using driver::kOutOfMemory;
using driver::kSuccess;

namespace {

// What the driver aligns every allocation to; those above the largest slot begin at a chunk of their own.
constexpr uint64_t kSmallestSlot = 512;
constexpr uint64_t kLargestSlot = 1 << 20;

uint64_t slot_for(uint64_t bytes) {
  return bytes <= kLargestSlot ? std::bit_ceil(std::max(bytes, kSmallestSlot))
                               : round_up(bytes, kMappingStep);
}

// With CUPOOL_LOG=verbose: what becomes of the host's memory.
void tell(int device, const char* what, uint64_t bytes) {
  if (log::is_verbose())
    log::detail("device {}: {} of host memory {}; {} in all", device, print_bytes(bytes), what,
                print_bytes(stats::spilled(device).read().reserved_bytes));
}

}  // namespace

// ---- How much.

// Asked of the driver once. No answer, nothing may spill: it is asked again next time.
uint64_t Spill::most_of(int device) {
  {
    Guard hold(lock_);
    if (const auto known = most_of_.find(device); known != most_of_.end()) return known->second;
  }
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess) return 0;
  const uint64_t most = mapping_.can_map(device) ? most_.of(total) : 0;
  Guard hold(lock_);
  return most_of_[device] = most;
}

// Before the driver is asked, so that threads together keep within what the user allows.
bool Spill::book(uint64_t bytes, uint64_t most) {
  uint64_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (bytes > most || taken > most - bytes) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

bool Spill::might_give(int device, uint64_t bytes) {
  const uint64_t most = most_of(device);
  const uint64_t taken = taken_.load(std::memory_order_relaxed);
  return taken <= most && bytes <= most - taken;
}

// ---- Blocks.

Status Spill::allocate(size_t bytes, Address* out) {
  int device = 0;
  if (driver_.device(&device) != kSuccess) return kOutOfMemory;
  const Kind kind{device, slot_for(bytes)};
  if (take_slot(kind, out)) return kSuccess;
  HostChunk chunk;
  chunk.kind = kind;
  chunk.bytes = round_up(kind.slot, kMappingStep);
  if (!book(chunk.bytes, most_of(device))) return kOutOfMemory;
  if (fill(&chunk, out) != kSuccess) {
    taken_.fetch_sub(chunk.bytes, std::memory_order_relaxed);
    // The program asked for device memory, and there is none.
    return kOutOfMemory;
  }
  stats::spilled(device).reserve(chunk.bytes);
  tell(device, "taken for blocks that spill", chunk.bytes);
  for (uint64_t slot = chunk.bytes / kind.slot - 1; slot > 0; --slot)
    chunk.free.push_back(static_cast<uint32_t>(slot));
  const uint64_t taken = chunk.bytes;
  std::vector<int> guests;
  {
    // let_in() reads and writes these in the other order, so one of the two lets a new device in.
    Guard hold(lock_);
    chunks_[*out] = std::move(chunk);
    guests = guests_;
  }
  mapping_.allow(*out, taken, guests.data(), guests.size(), driver::Mapping::Access::kReadWrite);
  Guard hold(lock_);
  open_locked(*out, chunks_[*out]);
  return kSuccess;
}

// The lowest chunk with room, so that others empty.
bool Spill::take_slot(const Kind& kind, Address* out) {
  Guard hold(lock_);
  const auto found = open_.find(kind);
  if (found == open_.end() || found->second.empty()) return false;
  const Address start = *found->second.begin();
  HostChunk& chunk = chunks_[start];
  *out = start + chunk.free.back() * kind.slot;
  chunk.free.pop_back();
  if (chunk.free.empty()) found->second.erase(start);
  return true;
}

void Spill::open_locked(Address start, const HostChunk& chunk) {
  if (!chunk.free.empty() && !chunk.is_shared) open_[chunk.kind].insert(start);
}

Spill::Chunks::iterator Spill::containing_locked(Address address) {
  auto next = chunks_.upper_bound(address);
  if (next == chunks_.begin()) return chunks_.end();
  --next;
  return address - next->first < next->second.bytes ? next : chunks_.end();
}

Part Spill::chunk_at(Address address) {
  Guard hold(lock_);
  const auto found = containing_locked(address);
  return found == chunks_.end() ? Part{} : Part{found->first, found->second.bytes};
}

void Spill::share(Address address) {
  Guard hold(lock_);
  const auto found = containing_locked(address);
  if (found == chunks_.end()) return;
  found->second.is_shared = true;
  if (const auto open = open_.find(found->second.kind); open != open_.end()) open->second.erase(found->first);
}

// A chunk that leaves meanwhile is no longer mapped: the driver refuses, and nothing is lost.
void Spill::let_in(int device) {
  std::vector<Part> parts;
  {
    Guard hold(lock_);
    if (std::find(guests_.begin(), guests_.end(), device) != guests_.end()) return;
    guests_.push_back(device);
    for (const auto& [start, chunk] : chunks_) parts.push_back({start, chunk.bytes});
  }
  for (const Part& part : parts)
    mapping_.allow(part.start, part.bytes, &device, 1, driver::Mapping::Access::kReadWrite);
}

Status Spill::fill(HostChunk* chunk, Address* out) {
  const int device = chunk->kind.device;
  Address at = 0;
  Status status = mapping_.reserve(chunk->bytes, &at);
  if (status != kSuccess) return status;
  status = mapping_.create(device, driver::Backing::kHost, chunk->bytes, &chunk->chunk);
  if (status == kSuccess) {
    status = mapping_.map(at, chunk->bytes, chunk->chunk);
    if (status == kSuccess) {
      status = mapping_.allow(at, chunk->bytes, &device, 1, driver::Mapping::Access::kReadWrite);
      if (status != kSuccess) mapping_.unmap(at, chunk->bytes);
    }
    if (status != kSuccess) mapping_.release(chunk->chunk);
  }
  if (status != kSuccess) mapping_.unreserve(at, chunk->bytes);
  *out = at;
  return status;
}

// ---- Back to the driver.

// Unmapping waits for nothing, but a release does (source.hpp).
Status Spill::release_in(driver::Context context, Address start) {
  const Status status = driver_.synchronize(context);
  return status == kSuccess ? take_away(start) : status;
}

// Only for a block that nobody has seen.
Status Spill::release(Address start) { return take_away(start); }

void Spill::drop(Address start) { take_away(start); }

// The last block of a chunk takes the chunk along. While that goes, nobody finds a slot in it.
Status Spill::take_away(Address address) {
  Address start = 0;
  driver::Chunk memory = driver::Chunk::kNone;
  uint64_t bytes = 0;
  int device = 0;
  {
    Guard hold(lock_);
    const auto found = containing_locked(address);
    if (found == chunks_.end()) return kInvalidValue;
    start = found->first;
    HostChunk& chunk = found->second;
    chunk.free.push_back(static_cast<uint32_t>((address - start) / chunk.kind.slot));
    if (!chunk.is_free()) {
      open_locked(start, chunk);
      return kSuccess;
    }
    if (const auto open = open_.find(chunk.kind); open != open_.end()) open->second.erase(start);
    memory = chunk.chunk;
    bytes = chunk.bytes;
    device = chunk.kind.device;
  }
  const Status status = mapping_.unmap(start, bytes);
  {
    // Before the addresses are free again: another thread may get them.
    Guard hold(lock_);
    if (status == kSuccess) {
      chunks_.erase(start);
    } else {
      // The caller keeps the block.
      HostChunk& chunk = chunks_[start];
      chunk.free.pop_back();
      open_locked(start, chunk);
    }
  }
  if (status != kSuccess) return status;
  mapping_.release(memory);
  mapping_.unreserve(start, bytes);
  taken_.fetch_sub(bytes, std::memory_order_relaxed);
  stats::spilled(device).release(bytes);
  tell(device, "given back", bytes);
  return kSuccess;
}

}  // namespace cupool::mapped
