// Addresses first-fit from the bottom, so memory given back is soon given again at the same place, as the
// real driver does. All under the state mutex. A failed system call here ends the process: a test double
// without memory has nothing true left to say.
#include "sim/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cupool::sim {
namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::abort();
}

void* must_map(void* at, std::uint64_t bytes, int protection, int flags, int fd, std::uint64_t offset) {
  void* const got = mmap(at, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (got == MAP_FAILED) fail("cupool-sim: mmap");
  return got;
}

constexpr std::uint64_t kLeastSpan = 1ull << 30;

#if defined(__SANITIZE_THREAD__) && defined(__aarch64__)
// ThreadSanitizer knows three parts of the address space here: 4 GiB at the top, where mmap finds room by
// itself, 8 GiB at the bottom, and 20 GiB around the program's own place, most of which is free. The first
// device lies there, at its full size but with fewer addresses to spare; what does not fit must be small.
constexpr std::uintptr_t kRoomBegin = 0xAAAB'C000'0000;
constexpr std::uintptr_t kRoomEnd = 0xAAAF'0000'0000;
std::uintptr_t room_at = kRoomBegin;
std::uint64_t span_for(std::uint64_t capacity) {
  return std::max(capacity / 2 * 3 / kGranule * kGranule, kLeastSpan);
}
std::uint64_t most_capacity() { return room_at == kRoomBegin ? 4ull << 30 : 384ull << 20; }
// Reservations, and the view of them, share the part at the bottom.
constexpr std::uint64_t kLowBegin = 512ull << 20;
constexpr std::uint64_t kMostAddresses = 3584ull << 20;
std::uint64_t most_addresses() { return kMostAddresses; }
void* place_for_addresses() { return reinterpret_cast<void*>(kLowBegin); }
void* place_for_view() { return reinterpret_cast<void*>(kLowBegin + kMostAddresses + kGranule); }
void* place_for(std::uint64_t bytes) {
  if (kRoomEnd - room_at < bytes) return nullptr;
  void* const place = reinterpret_cast<void*>(room_at);
  room_at += bytes;
  return place;
}
#else
// Four times the capacity in addresses: freeing and reserving in any order never runs out of room.
std::uint64_t span_for(std::uint64_t capacity) { return std::max(capacity * 4, kLeastSpan); }
std::uint64_t most_capacity() { return UINT64_MAX; }
std::uint64_t most_addresses() { return UINT64_MAX; }
void* place_for_addresses() { return nullptr; }
void* place_for_view() { return nullptr; }
void* place_for(std::uint64_t) { return nullptr; }
#endif

constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

Arena::Arena(std::uint64_t capacity_bytes)
    : capacity_(std::min(capacity_bytes, most_capacity()) / kGranule * kGranule) {
  span_ = span_for(capacity_);
  fd_ = memfd_create("cupool-sim", MFD_CLOEXEC);
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(span_)) != 0) fail("cupool-sim: memfd");
  reserve_span(place_for(span_ + kGranule), span_);
  view_ = static_cast<std::uint8_t*>(
      must_map(place_for(span_), span_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0));
  // A forked child has no device: the parent's memory must not be reachable there.
  madvise(view_, span_, MADV_DONTFORK);
}

std::unique_ptr<Arena> Arena::of_addresses(std::uint64_t bytes) {
  std::unique_ptr<Arena> made(new Arena());
  made->reserve_span(place_for_addresses(), std::min(bytes, most_addresses()) / kGranule * kGranule);
  made->view_ =
      static_cast<std::uint8_t*>(must_map(place_for_view(), made->span_, PROT_NONE, kNothing, -1, 0));
  return made;
}

void Arena::reserve_span(void* place, std::uint64_t bytes) {
  span_ = bytes;
  const auto raw =
      reinterpret_cast<std::uintptr_t>(must_map(place, span_ + kGranule, PROT_NONE, kNothing, -1, 0));
  base_ = (raw + kGranule - 1) / kGranule * kGranule;
  free_[0] = span_ / kGranule;
  present_.assign(span_ / kGranule, 0);
}

CUdeviceptr Arena::take_addresses(std::uint64_t granules, std::uint64_t alignment) {
  const std::uint64_t step = std::max<std::uint64_t>(alignment, kGranule);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const CUdeviceptr lowest = base_ + range->first * kGranule;
    const std::uint64_t skip = ((lowest + step - 1) / step * step - lowest) / kGranule;
    if (range->second < skip + granules) continue;
    const std::uint64_t first = range->first;
    const std::uint64_t count = range->second;
    free_.erase(range);
    if (skip > 0) free_[first] = skip;
    if (count > skip + granules) free_[first + skip + granules] = count - skip - granules;
    return base_ + (first + skip) * kGranule;
  }
  return 0;
}

void Arena::give_addresses(CUdeviceptr base, std::uint64_t granules) {
  std::uint64_t first = (base - base_) / kGranule;
  auto next = free_.lower_bound(first);
  if (next != free_.end() && next->first == first + granules) {
    granules += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      before->second += granules;
      return;
    }
  }
  free_[first] = granules;
}

void Arena::mark(CUdeviceptr at, std::uint64_t granules, bool is_present) {
  std::memset(present_.data() + (at - base_) / kGranule, is_present ? 1 : 0, granules);
}

void Arena::punch(std::uint64_t offset, std::uint64_t bytes) {
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

CUdeviceptr Arena::take(std::uint64_t granules, bool keep_bytes) {
  if (granules > (capacity_ - used_) / kGranule) return 0;
  const CUdeviceptr base = take_addresses(granules, kGranule);
  if (base == 0) return 0;
  used_ += granules * kGranule;
  // Memory that small allocations left behind keeps their bytes for the next small ones only.
  if (!keep_bytes) punch(offset_of(base), granules * kGranule);
  mark(base, granules, true);
  return base;
}

void Arena::give(CUdeviceptr base, std::uint64_t granules, bool keep_bytes) {
  used_ -= granules * kGranule;
  if (!keep_bytes) punch(offset_of(base), granules * kGranule);
  mark(base, granules, false);
  give_addresses(base, granules);
}

CUdeviceptr Arena::reserve(std::uint64_t granules, std::uint64_t alignment) {
  return granules > span_ / kGranule ? 0 : take_addresses(granules, alignment);
}

void Arena::unreserve(CUdeviceptr base, std::uint64_t granules) { give_addresses(base, granules); }

std::uint64_t Arena::take_physical(std::uint64_t granules) {
  const CUdeviceptr base = take(granules, false);
  if (base == 0) return UINT64_MAX;
  mark(base, granules, false);  // memory without an address of its own
  return offset_of(base);
}

void Arena::give_physical(std::uint64_t offset, std::uint64_t granules) {
  give(base_ + offset, granules, false);
}

bool Arena::map(CUdeviceptr at, std::uint64_t bytes, int fd, std::uint64_t offset) {
  void* const where = bytes_at(at);
  if (mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return false;
  }
  madvise(where, bytes, MADV_DONTFORK);
  mark(at, granules_for(bytes), true);
  return true;
}

void Arena::unmap(CUdeviceptr at, std::uint64_t bytes) {
  mark(at, granules_for(bytes), false);
  if (fd_ < 0) {
    must_map(bytes_at(at), bytes, PROT_NONE, kNothing | MAP_FIXED, -1, 0);
    return;
  }
  must_map(bytes_at(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_,
           offset_of(at));
  madvise(bytes_at(at), bytes, MADV_DONTFORK);
}

bool Arena::show_to_host(CUdeviceptr at, std::uint64_t bytes, int protection, int fd, std::uint64_t offset) {
  void* const where = reinterpret_cast<void*>(at);
  if (mmap(where, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return false;
  }
  madvise(where, bytes, MADV_DONTFORK);
  return true;
}

void Arena::hide_from_host(CUdeviceptr at, std::uint64_t bytes) {
  must_map(reinterpret_cast<void*>(at), bytes, PROT_NONE, kNothing | MAP_FIXED, -1, 0);
}

bool Arena::mapped(CUdeviceptr p, std::uint64_t bytes) const {
  if (!contains(p) || bytes > span_ - (p - base_)) return false;
  const std::uint64_t last = (p + (bytes == 0 ? 0 : bytes - 1) - base_) / kGranule;
  for (std::uint64_t g = (p - base_) / kGranule; g <= last; ++g) {
    if (present_[g] == 0) return false;
  }
  return true;
}

}  // namespace cupool::sim
