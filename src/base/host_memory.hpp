// Host memory for the library's own lists and tables. Nothing of ours throws, so a growing list must get what
// it asks for: when the host is out of memory, it comes from a reserve. From then on the host counts as
// short, and code that would start something new (cache a block, add a mark, open an import) checks that
// first and leaves it to the driver or reports out of memory. Calls under way always complete: the reserve is
// many times what one call needs.
#pragma once

#include <atomic>
#include <cstddef>

namespace cupool::host {

namespace detail {
inline constinit std::atomic<bool> was_refused{false};
bool is_still_short();
}  // namespace detail

// Whether the host refused us memory, and still would.
inline bool is_short() {
  return detail::was_refused.load(std::memory_order_relaxed) && detail::is_still_short();
}

// Never null: with no memory and no reserve left the process ends with a sentence.
void* take(size_t bytes, size_t alignment = alignof(std::max_align_t));
// Null if the host is out of memory; never uses the reserve.
void* take_if_there(size_t bytes, size_t alignment = alignof(std::max_align_t));
void give(void* memory);

}  // namespace cupool::host
