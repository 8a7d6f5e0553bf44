// See space.hpp. Addresses are claimed under the lock before the driver is asked, and are free again only
// after it has answered, so no two threads ever map or unmap the same ones.
#include "mapped/space.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/pages.hpp"
#include "trace/dealings.hpp"

namespace cupool::mapped {

using driver::Chunk;
using driver::kMappingStep;
using driver::kOutOfMemory;
using driver::kSuccess;
using driver::Mapping;
using stats::DeviceCounter;

// ---- Addresses.

bool Space::claim(uint64_t bytes, Address* out) {
  {
    Guard hold(lock_);
    if (addresses_.claim(bytes, out)) return true;
  }
  // One at a time: threads that come together would reserve several times what one of them needs.
  Guard reserving(reserving_);
  {
    Guard hold(lock_);
    if (addresses_.claim(bytes, out)) return true;
  }
  if (!reserve(bytes)) return false;
  Guard hold(lock_);
  return addresses_.claim(bytes, out);
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
    {
      Guard hold(lock_);
      if (addresses_.add(made)) return true;
    }
    unmap_pages(made.pages, made.count * sizeof(Page));
  }
  mapping_->unreserve(made.base, made.bytes);
  return false;
}

void Space::mark(Address at, uint64_t bytes, Page page) {
  Guard hold(lock_);
  addresses_.mark(at, bytes, page);
}

Space::Page Space::page_at(Address at) {
  Guard hold(lock_);
  return *addresses_.page(at);
}

// ---- Runs.

Status Space::map(const Run& run, Address* at) {
  uint64_t moved = 0;
  for (size_t i = 0; i < run.count; ++i) moved += run.parts[i].bytes;
  const uint64_t bytes = moved + run.more;
  if (*at != 0) {
    Guard hold(lock_);
    if (!addresses_.claim_at(*at, bytes)) return kOutOfMemory;
  } else if (!claim(bytes, at)) {
    return driver::kNotSupported;
  }
  bool is_clear = true;
  const Status status = map_claimed(run, *at, moved, &is_clear);
  // Where the driver has not unmapped what was mapped in vain, nothing else can be mapped.
  if (status != kSuccess) mark(*at, bytes, is_clear ? Page{} : Addresses::kClaimedPage);
  return status;
}

// What moves comes first: it costs less, so a refusal of the rest comes with no chunk created. Unless that is
// one chunk: the driver answers at once, and a refusal comes with nothing moved.
Status Space::map_claimed(const Run& run, Address at, uint64_t moved, bool* is_clear) {
  const auto make_new = [&] {
    if (run.more == 0) return kSuccess;
    return upstream_.take(run.more, [&] { return fill(at + moved, run.more, run.most, is_clear); });
  };
  const auto drop_new = [&] {
    if (run.more != 0 && !upstream_.give(run.more, [&] { return take_away(at + moved, run.more); }))
      *is_clear = false;
  };
  const bool begins_with_new = run.most >= run.more;
  Status status = begins_with_new ? make_new() : kSuccess;
  if (status != kSuccess) return status;
  status = move_in(run, at, is_clear);
  if (status != kSuccess) {
    if (begins_with_new) drop_new();
    return status;
  }
  if (!begins_with_new) status = make_new();
  if (status == kSuccess) {
    status = let_in(at, moved + run.more);
    if (status != kSuccess) drop_new();
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
  trace::tell_segment(trace::Dealing::kMapped, upstream_.device(), at, bytes);
  Guard hold(lock_);
  addresses_.mark(at, bytes, {chunk, static_cast<uint32_t>(bytes / kMappingStep), 0});
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
  if (has_vacated())
    for_each_chunk({start, bytes}, [&](Address, const Page& page) { unmap_vacated_of(page.chunk); });
  if (mapping_->unmap(start, bytes) != kSuccess) return false;
  for_each_chunk({start, bytes}, [&](Address at, const Page& page) {
    mapping_->release(page.chunk);
    stats::device(upstream_.device()).count(DeviceCounter::chunks_unmapped);
    trace::tell_segment(trace::Dealing::kUnmapped, upstream_.device(), at, page.pages * driver::kMappingStep);
  });
  return true;
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
    for (const Reservation& one : addresses_.reservations())
      Addresses::for_each_chunk(one, [&](const Part& chunk) { chunks.push_back(chunk); });
  }
  for (const Part& chunk : chunks) mapping_->allow(chunk.start, chunk.bytes, &device, 1, access);
}

// ---- The end.

// No other thread is in here: the pool is shut.
void Space::unmap_all() {
  Addresses::Reservations all;
  {
    Guard hold(lock_);
    all = addresses_.reservations();
  }
  unmap_vacated(order::kAnyStamp);
  for (const Reservation& one : all) {
    Addresses::for_each_chunk(one, [&](const Part& chunk) { take_away(chunk.start, chunk.bytes); });
    if (one.count != 0) mapping_->unreserve(one.base, one.bytes);
  }
  forget_all();
}

void Space::forget_all() {
  Guard hold(lock_);
  addresses_.drop_all();
  devices_.resize(1);
  // (An array to assign would lie on the stack of a thread that may have little of it.)
  vacated_.fill({});
  vacated_count_.store(0, std::memory_order_relaxed);
}

}  // namespace cupool::mapped
