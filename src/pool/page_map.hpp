// From a device address to the range that holds it, without a lock: two levels of 2 MiB pages, then one slot
// a granule. A slot names the range that starts there; every granule of a slab names the slab.
// Process-wide. Slots are written under the range lock of the pool that owns the page; pages enter and leave
// under the map's own lock. A page leaves the map before its memory goes back to the driver.
#pragma once

#include <array>
#include <atomic>

#include "base/lock.hpp"
#include "pool/metadata.hpp"
#include "pool/range.hpp"

namespace cupool::pool {

// What a slot names: a range, a slab (whose records are aligned, so that a bit can say so), or nothing.
class Owner {
 public:
  Owner() = default;
  explicit Owner(Range* range) : word_(reinterpret_cast<uintptr_t>(range)) {}
  explicit Owner(Slab* slab) : word_(reinterpret_cast<uintptr_t>(slab) | 1) {}

  explicit operator bool() const { return word_ != 0; }
  bool is_slab() const { return (word_ & 1) != 0; }
  // pre: it is one.
  Slab* slab() const { return reinterpret_cast<Slab*>(word_ - 1); }
  // pre: it is none.
  Range* plain_range() const { return reinterpret_cast<Range*>(word_); }
  Range* range() const;
  bool operator==(const Owner&) const = default;

 private:
  uintptr_t word_ = 0;
};

struct Page {
  std::array<std::atomic<Owner>, kGranulesPerPage> slots{};
  std::atomic<Segment*> segment{nullptr};
  Page* next_idle = nullptr;

  void reset() {
    for (auto& slot : slots) slot.store(Owner(), std::memory_order_relaxed);
    segment.store(nullptr, std::memory_order_relaxed);
  }
};

class PageMap {
 public:
  constexpr PageMap() = default;

  // Whose slot this address falls into; nobody's: no block starts here.
  Owner find(Address address) const {
    const Page* page = page_of(address);
    return page == nullptr ? Owner() : page->slots[slot_of(address)].load(std::memory_order_acquire);
  }
  bool is_ours(Address address) const { return page_of(address) != nullptr; }

  // False: no host memory, and nothing was entered. pre: start and bytes are multiples of a page.
  bool enter(Address start, uint64_t bytes);
  void set_segment(Segment* segment);
  void remove(Address start, uint64_t bytes);

  void set(Address address, Owner owner) {
    page_of(address)->slots[slot_of(address)].store(owner, std::memory_order_release);
  }
  void set_all(const Range& range, Owner owner) {
    for (Address at = range.start; at < range.end(); at += kGranule) set(at, owner);
  }
  // The pool that an address belongs to, or null.
  Pool* pool_of(Address address) const;
  // The range that contains any address of ours. pre: its pool's range lock is held, for neighbours are
  // walked.
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
  Lock lock_;
  ObjectStore<Page> pages_ CUPOOL_GUARDED_BY(lock_);
};

// The one map of the process.
[[gnu::visibility("hidden")]] extern constinit PageMap page_map;

}  // namespace cupool::pool
