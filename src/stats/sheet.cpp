// See sheet.hpp.
#include "stats/sheet.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/pages.hpp"

namespace cupool::stats {

constinit Sheet detail::sheet{};

namespace {

constinit Slots slots{};
constinit bool is_shared = false;

struct Part {
  void* memory;
  size_t bytes;
};
constexpr size_t kParts = 2;
void list_parts(Part* out) {
  out[0] = {&detail::sheet, sizeof detail::sheet};
  out[1] = {&slots, sizeof slots};
}

// Of the slots, only the pages that anybody has taken are copied.
size_t bytes_in_use(const Part& part) {
  if (part.memory != &slots) return part.bytes;
  const size_t taken = detail::sheet.slots_taken.load(std::memory_order_relaxed);
  return std::min(taken, slots.all.size()) * sizeof(Slot);
}

bool write_all(int file, const char* from, size_t bytes, uint64_t at) {
  while (bytes > 0) {
    const ssize_t written = pwrite(file, from, bytes, static_cast<off_t>(at));
    if (written <= 0) return false;
    from += written;
    at += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

Slot* take_slot() {
  const uint32_t mine = detail::sheet.slots_taken.fetch_add(1, std::memory_order_relaxed);
  return mine < slots.all.size() ? &slots.all[mine] : nullptr;
}

bool lay_over(int file, uint64_t at) {
  Part parts[kParts];
  list_parts(parts);
  if (sysconf(_SC_PAGESIZE) > static_cast<long>(kSheetPage)) return false;
  for (const Part& part : parts) {
    if (!write_all(file, static_cast<const char*>(part.memory), bytes_in_use(part), at)) return false;
    if (mmap(part.memory, part.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
             static_cast<off_t>(at)) == MAP_FAILED)
      return false;
    is_shared = true;
    at += part.bytes;
  }
  return true;
}

bool unshare_after_fork() {
  if (!is_shared) return true;
  Part parts[kParts];
  list_parts(parts);
  bool done = true;
  for (const Part& part : parts) {
    // The parent goes on counting meanwhile: what is copied of it is forgotten next.
    void* const own = map_pages(part.bytes);
    if (own == nullptr) {
      done = false;
      continue;
    }
    memcpy(own, part.memory, bytes_in_use(part));
    if (mremap(own, part.bytes, part.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, part.memory) == MAP_FAILED) {
      unmap_pages(own, part.bytes);
      done = false;
    }
  }
  if (done) is_shared = false;
  return done;
}

void forget_slots_after_fork() {
  for (Slot& slot : slots.all) {
    const SlotKind kind = slot.kind.load(std::memory_order_relaxed);
    if (kind == SlotKind::kTally || kind == SlotKind::kThreadTally)
      slot.kind.store(SlotKind::kFree, std::memory_order_relaxed);
  }
}

}  // namespace cupool::stats
