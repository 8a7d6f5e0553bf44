// From a device address to the range that holds it, without a lock: two levels of 2 MiB pages, then one slot
// per granule. A slot names the range that starts there; every granule of a slab names the slab.
// Process-wide. Slots are written under the range lock of the pool that owns the page; pages enter and leave
// under the map's own lock. A page leaves the map before its memory goes back to the driver.
#pragma once

#include <array>
#include <atomic>

#include "base/lock.hpp"
#include "pool/metadata.hpp"
#include "pool/range.hpp"

namespace cupool::pool {

struct Page {
  std::array<std::atomic<BlockRecord*>, kGranulesPerPage> slots{};
  std::atomic<Segment*> segment{nullptr};
  // The last range that was found to reach into the page from an earlier one. It may have gone since: its
  // record then speaks of another range, or of none, and is never freed.
  std::atomic<const Range*> around{nullptr};
  Page* next_idle = nullptr;

  void reset() {
    for (auto& slot : slots) slot.store(nullptr, std::memory_order_relaxed);
    segment.store(nullptr, std::memory_order_relaxed);
    around.store(nullptr, std::memory_order_relaxed);
  }
};

class PageMap {
 public:
  constexpr PageMap() = default;

  // The record in this address's slot; null: no block starts there.
  BlockRecord* find(Address address) const {
    const Page* page = page_of(address);
    return page == nullptr ? nullptr : page->slots[slot_of(address)].load(std::memory_order_acquire);
  }
  bool is_ours(Address address) const { return page_of(address) != nullptr; }
  // Whether these bytes lie in one live block, without a lock. kHeld is certain for the thread that holds the
  // block: nothing read here changes meanwhile. kMaybe: ask Pools::find.
  enum class Sight { kNotOurs, kHeld, kMaybe };
  Sight look(Address address, uint64_t bytes) const {
    const Page* page = page_of(address);
    if (page == nullptr) return Sight::kNotOurs;
    size_t slot = slot_of(address);
    const BlockRecord* record = page->slots[slot].load(std::memory_order_acquire);
    // Deep inside a large block, usually the first of its segment.
    const Segment* segment = page->segment.load(std::memory_order_acquire);
    const Range* first = segment == nullptr ? nullptr : segment->lowest();
    if (record == nullptr && first != nullptr && first->holds(address, bytes)) return Sight::kHeld;
    const Range* const around = record != nullptr ? nullptr : page->around.load(std::memory_order_acquire);
    if (around != nullptr && around->holds(address, bytes)) return Sight::kHeld;
    while (record == nullptr && slot-- > 0) record = page->slots[slot].load(std::memory_order_acquire);
    return record != nullptr && record->holds(address, bytes) ? Sight::kHeld : Sight::kMaybe;
  }

  // False: no host memory, and nothing was entered. pre: start and bytes are multiples of a page.
  bool enter(Address start, uint64_t bytes);
  void set_segment(Segment* segment, Address start, uint64_t bytes);
  void remove(Address start, uint64_t bytes);

  void set(Address address, BlockRecord* record) {
    page_of(address)->slots[slot_of(address)].store(record, std::memory_order_release);
  }
  void set_all(const Range& range, BlockRecord* record) {
    for (Address at = range.start; at < range.end(); at += kGranule) set(at, record);
  }
  // For look(): `range`, which begins in an earlier page, contains an address of ours. pre: its pool's range
  // lock is held.
  void remember(Address address, const Range* range) {
    page_of(address)->around.store(range, std::memory_order_release);
  }
  // The segment and the pool that an address belongs to, or null.
  Segment* segment_of(Address address) const {
    const Page* page = page_of(address);
    return page == nullptr ? nullptr : page->segment.load(std::memory_order_acquire);
  }
  Pool* pool_of(Address address) const;
  // The range that contains an address of ours. pre: its pool's range lock is held: walks neighbours.
  Range* find_containing(Address address) const;
  void forget_after_fork();

 private:
  static constexpr unsigned kLeafBits = 14;
  static constexpr unsigned kTopBits = 14;
  static constexpr unsigned kAddressBits = kPageShift + kLeafBits + kTopBits;
  using Leaf = std::array<std::atomic<Page*>, size_t{1} << kLeafBits>;

  static size_t slot_of(Address address) { return (address >> kGranuleShift) & (kGranulesPerPage - 1); }
  Page* page_of(Address address) const {
    if (address >> kAddressBits != 0) return nullptr;
    const Leaf* leaf = top_[address >> (kPageShift + kLeafBits)].load(std::memory_order_acquire);
    if (leaf == nullptr) return nullptr;
    return (*leaf)[(address >> kPageShift) & ((size_t{1} << kLeafBits) - 1)].load(std::memory_order_acquire);
  }
  bool enter_page(Address address) CUPOOL_REQUIRES(lock_);

  std::array<std::atomic<Leaf*>, size_t{1} << kTopBits> top_{};
  Lock lock_{Rank::kPageMap};
  ObjectStore<Page, &Page::next_idle> pages_ CUPOOL_GUARDED_BY(lock_);
};

// The one map of the process.
[[gnu::visibility("hidden")]] extern constinit PageMap page_map;

}  // namespace cupool::pool
