// See host_memory.hpp. The reserve is part of the library's own zeroed data: it exists even under a limit on
// the address space. It is handed out from the front, and starts over when none of it is in use any more.
#include "base/host_memory.hpp"

#include <cstdint>
#include <cstdlib>

#include "base/lock.hpp"
#include "base/log.hpp"

namespace cupool::host {
namespace {

constexpr size_t kReserveBytes = 512 * 1024;
// What the host must be able to give before it no longer counts as short: more than a call needs.
constexpr size_t kProbeBytes = 64 * 1024;

constinit Lock lock{Rank::kHostMemory};
alignas(64) constinit char reserve[kReserveBytes] = {};
constinit size_t used CUPOOL_GUARDED_BY(lock) = 0;
constinit size_t held CUPOOL_GUARDED_BY(lock) = 0;

bool is_reserve(const void* memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const auto begin = reinterpret_cast<uintptr_t>(reserve);
  return at >= begin && at < begin + kReserveBytes;
}

void* take_reserve(size_t bytes, size_t alignment) {
  detail::was_refused.store(true, std::memory_order_relaxed);
  const Guard hold(lock);
  const size_t start = (used + alignment - 1) & ~(alignment - 1);
  if (start > kReserveBytes || bytes > kReserveBytes - start) return nullptr;
  used = start + bytes;
  ++held;
  return reserve + start;
}

}  // namespace

bool detail::is_still_short() {
  {
    const Guard hold(lock);
    if (used > kReserveBytes / 2) return true;
  }
  void* const probe = malloc(kProbeBytes);
  if (probe == nullptr) return true;
  free(probe);
  was_refused.store(false, std::memory_order_relaxed);
  return false;
}

void* take_if_there(size_t bytes, size_t alignment) {
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return malloc(bytes);
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void* take(size_t bytes, size_t alignment) {
  if (void* const memory = take_if_there(bytes, alignment)) return memory;
  if (void* const memory = take_reserve(bytes, alignment)) return memory;
  log::line("the host has no memory left, not even for cupool's own records");
  abort();
}

void give(void* memory) {
  if (!is_reserve(memory)) return free(memory);
  const Guard hold(lock);
  if (--held == 0) used = 0;
}

}  // namespace cupool::host
