// Host memory for the library's own lists and tables. Nothing of ours throws, so a list that grows must get
// what it asks for: when the host has no memory left, it comes from a reserve that was set aside. From then
// on the host counts as short, and whoever would begin something new (a block to be kept, a mark, an import)
// asks that first, and leaves it to the driver or answers that memory is short. What is under way always ends
// well: the reserve is many times what one call needs.
#pragma once

#include <atomic>
#include <cstddef>

namespace cupool::host {

namespace detail {
inline constinit std::atomic<bool> was_refused{false};
bool is_still_short();
}  // namespace detail

// Whether the host had no memory for us, and still has none.
inline bool is_short() {
  return detail::was_refused.load(std::memory_order_relaxed) && detail::is_still_short();
}

// Never null: with no memory and no reserve left the process ends with a sentence.
void* take(size_t bytes, size_t alignment = alignof(std::max_align_t));
// Null where the host has none; the reserve is not for this.
void* take_if_there(size_t bytes, size_t alignment = alignof(std::max_align_t));
void give(void* memory);

}  // namespace cupool::host
