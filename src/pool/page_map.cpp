// Entering and removing pages, under the map's lock, and the walk to the range that contains an address,
// under its pool's. Must not call the driver: a page leaves the map before its memory goes back.
#include "pool/page_map.hpp"

#include "pool/slab.hpp"

namespace cupool::pool {

constinit PageMap page_map;

bool PageMap::enter_page(Address address) {
  if (address >> kAddressBits != 0) return false;
  auto& top = top_[address >> (kPageShift + kLeafBits)];
  Leaf* leaf = top.load(std::memory_order_relaxed);
  if (leaf == nullptr) {
    leaf = static_cast<Leaf*>(map_pages(sizeof(Leaf)));
    if (leaf == nullptr) return false;
    top.store(leaf, std::memory_order_release);
  }
  auto& entry = (*leaf)[(address >> kPageShift) & ((size_t{1} << kLeafBits) - 1)];
  // Two segments in one page cannot be told apart: the caller must not pool the second.
  if (entry.load(std::memory_order_relaxed) != nullptr) return false;
  Page* page = pages_.take();
  if (page == nullptr) return false;
  entry.store(page, std::memory_order_release);
  return true;
}

bool PageMap::enter(Address start, uint64_t bytes) {
  Address at = start;
  {
    Guard hold(lock_);
    while (at < start + bytes && enter_page(at)) at += kPageBytes;
  }
  if (at == start + bytes) return true;
  remove(start, at - start);
  return false;
}

void PageMap::set_segment(Segment* segment, Address start, uint64_t bytes) {
  for (Address at = start; at < start + bytes; at += kPageBytes) {
    page_of(at)->segment.store(segment, std::memory_order_release);
  }
}

void PageMap::remove(Address start, uint64_t bytes) {
  Guard hold(lock_);
  for (Address at = start; at < start + bytes; at += kPageBytes) {
    Leaf& leaf = *top_[at >> (kPageShift + kLeafBits)].load(std::memory_order_relaxed);
    auto& entry = leaf[(at >> kPageShift) & ((size_t{1} << kLeafBits) - 1)];
    pages_.give(entry.exchange(nullptr, std::memory_order_acq_rel));
  }
}

void PageMap::forget_after_fork() {
  lock_.reset_after_fork();
  for (auto& leaf : top_) leaf.store(nullptr, std::memory_order_relaxed);
}

Pool* PageMap::pool_of(Address address) const {
  const Segment* const segment = segment_of(address);
  return segment == nullptr ? nullptr : segment->pool;
}

// If no range starts in the page before the address, it is deep inside a large one: usually one of the first
// or the last of its segment, else one that starts in an earlier page.
Range* PageMap::find_containing(Address address) const {
  const Segment* const segment = segment_of(address);
  if (segment == nullptr) return nullptr;
  const Address start = segment->start;
  if (Range* const first = segment->lowest(); first->end() > address) return first;
  const auto last_in = [&](Address page, size_t slot) -> Range* {
    const Page* const there = page_of(page);
    for (size_t i = slot + 1; there != nullptr && i-- > 0;) {
      const BlockRecord* const record = there->slots[i].load(std::memory_order_acquire);
      if (record != nullptr) return record->range;
    }
    return nullptr;
  };
  Address page = address & ~(kPageBytes - 1);
  Range* found = last_in(page, slot_of(address));
  constexpr int kFewRanges = 64;
  Range* low = segment->lowest();
  Range* high = segment->last;
  for (int i = 0; found == nullptr && i < kFewRanges && low != nullptr && high != nullptr; ++i) {
    if (low->end() > address) found = low;
    if (high->start <= address) found = high;
    low = low->after;
    high = high->before;
  }
  // A block that was found to reach into a page is named there. (Its record may speak of another by now, and
  // of none if its tag is clear.)
  const auto around = [&](Address here) -> Range* {
    const Page* const there = page_of(here);
    const Range* const range = there == nullptr ? nullptr : there->around.load(std::memory_order_acquire);
    const bool is_there = range != nullptr && range->tag.load(std::memory_order_relaxed) != 0 &&
                          range->segment.load(std::memory_order_relaxed) == segment &&
                          range->start <= address && address < range->end();
    return is_there ? range->range : nullptr;
  };
  if (found == nullptr) found = around(page);
  while (found == nullptr && page > start) {
    page -= kPageBytes;
    found = last_in(page, kGranulesPerPage - 1);
    if (found == nullptr) found = around(page);
  }
  return found != nullptr && found->end() > address ? found : nullptr;
}

}  // namespace cupool::pool
