// See addresses.hpp.
#include "mapped/addresses.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/pages.hpp"

namespace cupool::mapped {

using driver::kMappingStep;

Addresses::Reservation* Addresses::reservation(Address at) {
  for (Reservation& one : reservations_) {
    if (one.count != 0 && at >= one.base && at < one.end()) return &one;
  }
  return nullptr;
}

Addresses::Page* Addresses::page(Address at) {
  Reservation* const where = reservation(at);
  return where == nullptr ? nullptr : &where->pages[(at - where->base) / kMappingStep];
}

bool Addresses::add(const Reservation& made) {
  for (Reservation& one : reservations_) {
    if (one.count != 0) continue;
    one = made;
    return true;
  }
  return false;
}

void Addresses::drop_all() {
  for (Reservation& one : reservations_) {
    if (one.pages != nullptr) unmap_pages(one.pages, one.count * sizeof(Page));
    one = {};
  }
}

void Addresses::mark(Address at, uint64_t bytes, Page page_there) {
  Page* const first = page(at);
  for (uint64_t i = 0; i < bytes / kMappingStep; ++i) {
    first[i] = page_there;
    first[i].before = static_cast<uint32_t>(i);
  }
  Reservation& where = *reservation(at);
  const uint64_t index = static_cast<uint64_t>(first - where.pages);
  if (page_there.pages == 0) {
    where.full = std::min(where.full, index);
    // A search for a gap need not go over what was given up at the end.
    if (index + bytes / kMappingStep == where.used) where.used = index;
  }
  if (page_there.pages != 0 && index <= where.full)
    where.full = std::max(where.full, index + bytes / kMappingStep);
}

// The lowest one: runs then lie side by side, so that free ranges merge across them.
bool Addresses::find_gap(const Reservation& where, uint64_t pages, uint64_t* first) {
  uint64_t free = 0;
  for (uint64_t i = where.full; i < where.used;) {
    const uint32_t held = where.pages[i].pages;
    free = held == 0 ? free + 1 : 0;
    i += held == 0 || held == kClaimed ? 1 : held;
    *first = i - free;
    if (free == pages) return true;
  }
  *first = where.used - free;
  return where.count - *first >= pages;
}

bool Addresses::claim(uint64_t bytes, Address* out) {
  const uint64_t pages = bytes / kMappingStep;
  for (Reservation& one : reservations_) {
    uint64_t first = 0;
    if (one.count == 0 || !find_gap(one, pages, &first)) continue;
    *out = one.base + first * kMappingStep;
    one.used = std::max(one.used, first + pages);
    mark(*out, bytes, kClaimedPage);
    return true;
  }
  return false;
}

bool Addresses::is_vacant(Address at, uint64_t bytes) {
  const Reservation* const where = reservation(at);
  if (where == nullptr || where->end() - at < bytes) return false;
  const Page* const first = page(at);
  return std::all_of(first, first + bytes / kMappingStep, [](const Page& one) { return one.pages == 0; });
}

bool Addresses::claim_at(Address at, uint64_t bytes) {
  if (!is_vacant(at, bytes)) return false;
  Reservation& where = *reservation(at);
  where.used = std::max(where.used, (at - where.base) / kMappingStep + bytes / kMappingStep);
  mark(at, bytes, kClaimedPage);
  return true;
}

Part Addresses::chunks_in(Address start, uint64_t bytes, uint64_t enough) {
  const Address first_page = round_up(start, kMappingStep);
  if (first_page >= start + bytes) return {};
  const Page* at = page(first_page);
  if (at == nullptr) return {};
  Part part{first_page, 0};
  if (at->before != 0) {
    part.start += (at->pages - at->before) * kMappingStep;
    at += at->pages - at->before;
  }
  const Address end = start + bytes;
  while (part.bytes < enough && part.start + part.bytes < end) {
    const uint64_t chunk = at->pages * kMappingStep;
    if (part.start + part.bytes + chunk > end) break;
    part.bytes += chunk;
    at += at->pages;
  }
  return part;
}

Part Addresses::chunks_around(Address start, uint64_t bytes) {
  const Page* const first = page(start);
  const Page* const last = page(start + bytes - 1);
  if (first == nullptr || last == nullptr) return {};
  const Address begin = start / kMappingStep * kMappingStep - first->before * kMappingStep;
  const Address end =
      (start + bytes - 1) / kMappingStep * kMappingStep + (last->pages - last->before) * kMappingStep;
  return {begin, end - begin};
}

Part Addresses::chunk_at(Address address) {
  const Page* const at = page(address);
  if (at == nullptr || at->pages == 0 || at->pages == kClaimed) return {};
  const Address start = address / kMappingStep * kMappingStep - at->before * kMappingStep;
  return {start, at->pages * kMappingStep};
}

}  // namespace cupool::mapped
