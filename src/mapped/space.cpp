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

bool Space::claim_at(Address at, uint64_t bytes) {
  Guard hold(lock_);
  Reservation* const where = reservation_locked(at);
  if (where == nullptr || where->end() - at < bytes) return false;
  const uint64_t first = (at - where->base) / kMappingStep;
  const uint64_t pages = bytes / kMappingStep;
  for (uint64_t i = first; i < first + pages; ++i) {
    if (where->pages[i].pages != 0) return false;
  }
  where->used = std::max(where->used, first + pages);
  mark_locked(at, bytes, {Chunk::kNone, kClaimed, 0});
  return true;
}

void Space::mark(Address at, uint64_t bytes, Page page) {
  Guard hold(lock_);
  mark_locked(at, bytes, page);
}

Space::Page Space::page_at(Address at) {
  Guard hold(lock_);
  return *page_locked(at);
}

template <typename Visit>
void Space::for_each_chunk(const Part& part, Visit&& visit) {
  for (Address at = part.start; at < part.start + part.bytes;) {
    const Page page = page_at(at);
    visit(at, page);
    at += page.pages * kMappingStep;
  }
}

// ---- Runs.

Status Space::map(const Run& run, Address* at) {
  uint64_t moved = 0;
  for (size_t i = 0; i < run.count; ++i) moved += run.parts[i].bytes;
  const uint64_t bytes = moved + run.more;
  if (*at != 0) {
    if (!claim_at(*at, bytes)) return kOutOfMemory;
  } else if (!claim(bytes, at)) {
    return driver::kNotSupported;
  }
  bool is_clear = true;
  const Status status = map_claimed(run, *at, moved, &is_clear);
  // Where the driver has not unmapped what was mapped in vain, nothing else can be mapped.
  if (status != kSuccess) mark(*at, bytes, is_clear ? Page{} : Page{Chunk::kNone, kClaimed, 0});
  return status;
}

// What moves comes first: it costs nothing, so a refusal of the rest comes with no chunk created.
Status Space::map_claimed(const Run& run, Address at, uint64_t moved, bool* is_clear) {
  Status status = move_in(run, at, is_clear);
  if (status != kSuccess) return status;
  if (run.more != 0)
    status = upstream_.take(run.more, [&] { return fill(at + moved, run.more, run.most, is_clear); });
  if (status == kSuccess) {
    status = let_in(at, moved + run.more);
    if (status != kSuccess && run.more != 0)
      *is_clear = upstream_.give(run.more, [&] { return take_away(at + moved, run.more); });
  }
  if (status != kSuccess && moved != 0 && mapping_->unmap(at, moved) != kSuccess) *is_clear = false;
  end_move(run, status == kSuccess);
  return status;
}

// Puts new chunks behind claimed addresses; if that fails, there are none.
Status Space::fill(Address at, uint64_t bytes, uint64_t most, bool* is_clear) {
  uint64_t done = 0;
  Status status = kSuccess;
  while (status == kSuccess && done < bytes) {
    const uint64_t next = std::min(most, bytes - done);
    status = fill_chunk(at + done, next);
    if (status == kSuccess) done += next;
  }
  if (status != kSuccess && done != 0) *is_clear = take_away(at, done);
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
  const bool is_taken = upstream_.give(bytes, [&] { return take_away(start, bytes); });
  if (is_taken) mark(start, bytes, {});
  return is_taken;
}

// The addresses stay claimed. What chunks have left goes first: their work was done before that of their
// present place, and the memory is the device's again only when nothing maps it.
bool Space::take_away(Address start, uint64_t bytes) {
  if (has_left())
    for_each_chunk({start, bytes}, [&](Address, const Page& page) { unmap_left_of(page.chunk); });
  if (mapping_->unmap(start, bytes) != kSuccess) return false;
  for_each_chunk({start, bytes}, [&](Address, const Page& page) {
    mapping_->release(page.chunk);
    stats::device(upstream_.device()).count(DeviceCounter::chunks_unmapped);
  });
  return true;
}

// ---- Moves.

bool Space::enlist(const Left& left) {
  Guard hold(lock_);
  for (Left& one : left_) {
    if (one.bytes != 0) continue;
    one = left;
    left_count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void Space::drop_locked(Left& left) {
  left = {};
  left_count_.fetch_sub(1, std::memory_order_relaxed);
}

// Maps the chunks of all parts at claimed addresses too; if that fails, none.
Status Space::move_in(const Run& run, Address start, bool* is_clear) {
  Status status = kSuccess;
  Address at = start;
  for (size_t i = 0; i < run.count; ++i) {
    for_each_chunk(run.parts[i], [&](Address from, const Page& page) {
      if (status != kSuccess) return;
      const uint64_t bytes = page.pages * kMappingStep;
      status =
          enlist({from, bytes, page.chunk, run.until}) ? mapping_->map(at, bytes, page.chunk) : kOutOfMemory;
      if (status != kSuccess) return;
      mark(at, bytes, page);
      at += bytes;
    });
  }
  if (status == kSuccess) return status;
  if (at != start) *is_clear = mapping_->unmap(start, at - start) == kSuccess;
  end_move(run, false);
  return status;
}

// The parts' old addresses are left, or stay what they were.
void Space::end_move(const Run& run, bool is_made) {
  if (run.count == 0) return;
  Guard hold(lock_);
  for (size_t i = 0; i < run.count; ++i) {
    const Part& part = run.parts[i];
    for (Left& left : left_) {
      if (left.bytes == 0 || left.is_left || left.at < part.start || left.at >= part.start + part.bytes)
        continue;
      left.is_left = true;
      if (!is_made) drop_locked(left);
      if (is_made) stats::device(upstream_.device()).count(DeviceCounter::chunks_moved);
    }
    if (is_made) mark_locked(part.start, part.bytes, {Chunk::kNone, kClaimed, 0});
  }
}

template <typename Which>
void Space::unmap_where(Which&& which) {
  for (;;) {
    Left found;
    {
      Guard hold(lock_);
      const auto one = std::find_if(left_.begin(), left_.end(), [&](const Left& left) {
        return left.bytes != 0 && left.is_left && which(left);
      });
      if (one == left_.end()) return;
      found = *one;
      drop_locked(*one);
    }
    if (mapping_->unmap(found.at, found.bytes) != kSuccess) {
      // Tried again the next time.
      enlist(found);
      return;
    }
    mark(found.at, found.bytes, {});
  }
}

void Space::unmap_left(order::Epoch done) {
  if (has_left()) unmap_where([done](const Left& left) { return left.until <= done; });
}

void Space::unmap_left_of(Chunk chunk) {
  unmap_where([chunk](const Left& left) { return left.chunk == chunk; });
}

// ---- Which chunks.

size_t Space::count_chunks(const Part& part) {
  size_t count = 0;
  for_each_chunk(part, [&](Address, const Page&) { ++count; });
  return count;
}

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
    if (device == devices_.front()) return;
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) devices_.push_back(device);
  }
  change_access(device, Mapping::Access::kReadWrite);
}

void Space::forbid(int device) {
  {
    Guard hold(lock_);
    if (device == devices_.front()) return;
    std::erase(devices_, device);
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
  unmap_left(order::kAnyStamp);
  for (const Reservation& one : all) {
    for (uint64_t i = 0; i < one.used;) {
      const uint32_t held = one.pages[i].pages;
      const bool is_chunk = held != 0 && held != kClaimed;
      if (is_chunk) take_away(one.base + i * kMappingStep, held * kMappingStep);
      i += is_chunk ? held : 1;
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
  // (An array to assign would lie on the stack of a thread that may have little of it.)
  left_.fill({});
  left_count_.store(0, std::memory_order_relaxed);
}

}  // namespace cupool::mapped
