// See space.hpp. Addresses are claimed under the lock before the driver is asked, and are free again only
// after it has answered, so no two threads ever map or unmap the same ones.
#include "mapped/space.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/pages.hpp"

namespace cupool::mapped {

using driver::Chunk;
using driver::kMappingStep;
using driver::kOutOfMemory;
using driver::kSuccess;
using driver::Mapping;
using stats::DeviceCounter;

// ---- Addresses.

Space::Reservation* Space::reservation_locked(Address at) {
  for (Reservation& one : reservations_) {
    if (one.count != 0 && at >= one.base && at < one.end()) return &one;
  }
  return nullptr;
}

Space::Page* Space::page_locked(Address at) {
  Reservation* const where = reservation_locked(at);
  return where == nullptr ? nullptr : &where->pages[(at - where->base) / kMappingStep];
}

void Space::mark_locked(Address at, uint64_t bytes, Page page) {
  Page* const first = page_locked(at);
  for (uint64_t i = 0; i < bytes / kMappingStep; ++i) {
    first[i] = page;
    first[i].before = static_cast<uint32_t>(i);
  }
}

// The lowest one: runs then lie side by side, so that free ranges merge across them.
bool Space::find_gap(const Reservation& where, uint64_t pages, uint64_t* first) {
  uint64_t free = 0;
  for (uint64_t i = 0; i < where.used;) {
    const uint32_t held = where.pages[i].pages;
    free = held == 0 ? free + 1 : 0;
    i += held == 0 || held == kClaimed ? 1 : held;
    *first = i - free;
    if (free == pages) return true;
  }
  *first = where.used - free;
  return where.count - *first >= pages;
}

bool Space::claim_locked(uint64_t bytes, Address* out) {
  const uint64_t pages = bytes / kMappingStep;
  for (Reservation& one : reservations_) {
    uint64_t first = 0;
    if (one.count == 0 || !find_gap(one, pages, &first)) continue;
    *out = one.base + first * kMappingStep;
    one.used = std::max(one.used, first + pages);
    mark_locked(*out, bytes, {Chunk::kNone, kClaimed, 0});
    return true;
  }
  return false;
}

bool Space::claim(uint64_t bytes, Address* out) {
  {
    Guard hold(lock_);
    if (claim_locked(bytes, out)) return true;
  }
  if (!reserve(bytes)) return false;
  Guard hold(lock_);
  return claim_locked(bytes, out);
}

// Addresses cost nothing, so that there is nearly always a gap without moving anything. A driver that does
// not give as many gives fewer.
bool Space::reserve(uint64_t bytes) {
  constexpr uint64_t kTimesDevice = 4;
  Reservation made;
  // The last page stays unused, so that runs of two reservations never lie side by side.
  const uint64_t least = bytes + kMappingStep;
  made.bytes = round_up(std::max(least, kTimesDevice * device_bytes_), kMappingStep);
  while (mapping_->reserve(made.bytes, &made.base) != kSuccess) {
    if (made.bytes == least) return false;
    made.bytes = std::max(least, round_up(made.bytes / 2, kMappingStep));
  }
  made.count = made.bytes / kMappingStep - 1;
  made.pages = static_cast<Page*>(map_pages(made.count * sizeof(Page)));
  if (made.pages != nullptr) {
    Guard hold(lock_);
    for (Reservation& one : reservations_) {
      if (one.count != 0) continue;
      one = made;
      return true;
    }
    unmap_pages(made.pages, made.count * sizeof(Page));
  }
  mapping_->unreserve(made.base, made.bytes);
  return false;
}

bool Space::is_vacant(Address at, uint64_t bytes) {
  Guard hold(lock_);
  const Reservation* const where = reservation_locked(at);
  if (where == nullptr || where->end() - at < bytes) return false;
  const Page* const first = page_locked(at);
  return std::all_of(first, first + bytes / kMappingStep, [](const Page& page) { return page.pages == 0; });
}

// ---- Runs.

Status Space::map(uint64_t bytes, uint64_t most, Address* out) {
  return claim(bytes, out) ? map_claimed(*out, bytes, most) : driver::kNotSupported;
}

Status Space::map_at(Address at, uint64_t bytes, uint64_t most) {
  {
    Guard hold(lock_);
    Reservation* const where = reservation_locked(at);
    if (where == nullptr || where->end() - at < bytes) return kOutOfMemory;
    const uint64_t first = (at - where->base) / kMappingStep;
    const uint64_t pages = bytes / kMappingStep;
    for (uint64_t i = first; i < first + pages; ++i) {
      if (where->pages[i].pages != 0) return kOutOfMemory;
    }
    where->used = std::max(where->used, first + pages);
    mark_locked(at, bytes, {Chunk::kNone, kClaimed, 0});
  }
  return map_claimed(at, bytes, most);
}

Status Space::map_claimed(Address at, uint64_t bytes, uint64_t most) {
  bool is_asked = false;
  const Status status = upstream_.take(bytes, [&] {
    is_asked = true;
    return fill(at, bytes, most);
  });
  if (is_asked) return status;
  Guard hold(lock_);
  mark_locked(at, bytes, {});
  return status;
}

// Puts chunks behind claimed addresses; if that fails, they are free again.
Status Space::fill(Address at, uint64_t bytes, uint64_t most) {
  uint64_t done = 0;
  Status status = kSuccess;
  while (status == kSuccess && done < bytes) {
    const uint64_t next = std::min(most, bytes - done);
    status = fill_chunk(at + done, next);
    if (status == kSuccess) done += next;
  }
  if (status == kSuccess) status = let_in(at, bytes);
  if (status == kSuccess) return status;
  if (done != 0) take_away(at, done);
  Guard hold(lock_);
  mark_locked(at + done, bytes - done, {});
  return status;
}

Status Space::fill_chunk(Address at, uint64_t bytes) {
  Chunk chunk = Chunk::kNone;
  Status status = mapping_->create(upstream_.device(), driver::Backing::kDevice, bytes, &chunk);
  if (status != kSuccess) return status;
  status = mapping_->map(at, bytes, chunk);
  if (status != kSuccess) {
    mapping_->release(chunk);
    return status;
  }
  stats::device(upstream_.device()).count(DeviceCounter::chunks_mapped);
  Guard hold(lock_);
  mark_locked(at, bytes, {chunk, static_cast<uint32_t>(bytes / kMappingStep), 0});
  return kSuccess;
}

// The list is read after the chunks were recorded; allow() does the two in the other order, so one of them
// lets a new device in.
Status Space::let_in(Address at, uint64_t bytes) {
  std::vector<int> devices;
  {
    Guard hold(lock_);
    devices = devices_;
  }
  const Status status = mapping_->allow(at, bytes, devices.data(), 1, Mapping::Access::kReadWrite);
  // The program was told whether a device can access another's memory when it asked for that.
  if (status == kSuccess && devices.size() > 1)
    mapping_->allow(at, bytes, devices.data() + 1, devices.size() - 1, Mapping::Access::kReadWrite);
  return status;
}

bool Space::unmap(Address start, uint64_t bytes) {
  return upstream_.give(bytes, [&] { return take_away(start, bytes); });
}

bool Space::take_away(Address start, uint64_t bytes) {
  if (mapping_->unmap(start, bytes) != kSuccess) return false;
  for (Address at = start; at < start + bytes;) {
    Page page;
    {
      Guard hold(lock_);
      page = *page_locked(at);
    }
    mapping_->release(page.chunk);
    stats::device(upstream_.device()).count(DeviceCounter::chunks_unmapped);
    at += page.pages * kMappingStep;
  }
  Guard hold(lock_);
  mark_locked(start, bytes, {});
  return true;
}

// ---- Which chunks.

Part Space::chunks_in(Address start, uint64_t bytes, uint64_t enough) {
  Guard hold(lock_);
  const Address first_page = round_up(start, kMappingStep);
  if (first_page >= start + bytes) return {};
  const Page* page = page_locked(first_page);
  if (page == nullptr) return {};
  Part part{first_page, 0};
  if (page->before != 0) {
    part.start += (page->pages - page->before) * kMappingStep;
    page += page->pages - page->before;
  }
  const Address end = start + bytes;
  while (part.bytes < enough && part.start + part.bytes < end) {
    const uint64_t chunk = page->pages * kMappingStep;
    if (part.start + part.bytes + chunk > end) break;
    part.bytes += chunk;
    page += page->pages;
  }
  return part;
}

Part Space::chunks_around(Address start, uint64_t bytes) {
  Guard hold(lock_);
  const Page* const first = page_locked(start);
  const Page* const last = page_locked(start + bytes - 1);
  if (first == nullptr || last == nullptr) return {};
  const Address begin = start / kMappingStep * kMappingStep - first->before * kMappingStep;
  const Address end =
      (start + bytes - 1) / kMappingStep * kMappingStep + (last->pages - last->before) * kMappingStep;
  return {begin, end - begin};
}

Part Space::chunk_at(Address address) {
  Guard hold(lock_);
  const Page* const page = page_locked(address);
  if (page == nullptr || page->pages == 0 || page->pages == kClaimed) return {};
  const Address start = address / kMappingStep * kMappingStep - page->before * kMappingStep;
  return {start, page->pages * kMappingStep};
}

// ---- Other devices.

void Space::allow(int device) {
  {
    Guard hold(lock_);
    if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return;
    devices_.push_back(device);
  }
  change_access(device, Mapping::Access::kReadWrite);
}

void Space::forbid(int device) {
  {
    Guard hold(lock_);
    if (device == devices_.front() || std::erase(devices_, device) == 0) return;
  }
  change_access(device, Mapping::Access::kNone);
}

// A chunk that leaves meanwhile is no longer mapped: the driver refuses, and nothing is lost.
void Space::change_access(int device, Mapping::Access access) {
  std::vector<Part> chunks;
  {
    Guard hold(lock_);
    for (const Reservation& one : reservations_) {
      for (uint64_t i = 0; i < one.used;) {
        const Page& page = one.pages[i];
        const bool is_chunk = page.pages != 0 && page.pages != kClaimed;
        if (is_chunk) chunks.push_back({one.base + i * kMappingStep, page.pages * kMappingStep});
        i += is_chunk ? page.pages : 1;
      }
    }
  }
  for (const Part& chunk : chunks) mapping_->allow(chunk.start, chunk.bytes, &device, 1, access);
}

// ---- The end.

// No other thread is in here: the pool is shut.
void Space::unmap_all() {
  Reservations all;
  {
    Guard hold(lock_);
    all = reservations_;
  }
  for (const Reservation& one : all) {
    for (uint64_t i = 0; i < one.used;) {
      const uint32_t held = one.pages[i].pages;
      if (held != 0) take_away(one.base + i * kMappingStep, held * kMappingStep);
      i += std::max<uint32_t>(held, 1);
    }
    if (one.count != 0) mapping_->unreserve(one.base, one.bytes);
  }
  forget_all();
}

void Space::forget_all() {
  Guard hold(lock_);
  for (Reservation& one : reservations_) {
    if (one.pages != nullptr) unmap_pages(one.pages, one.count * sizeof(Page));
    one = {};
  }
  devices_.resize(1);
}

}  // namespace cupool::mapped
