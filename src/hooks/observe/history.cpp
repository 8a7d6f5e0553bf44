// See history.hpp. While the host is short of memory, no new records are made.
#include "hooks/observe/history.hpp"

#include "base/call_stack.hpp"
#include "base/host_memory.hpp"

namespace cupool::hooks {
namespace {

History::Stack stack_here() {
  History::Stack stack;
  void* frames[kDeepestStack];
  const size_t count = call_stack(frames, kDeepestStack);
  // The innermost frames are ours: drop them here, or they would push out the outermost ones.
  stack.count = without_own_frames(frames, count, stack.frames.data(), stack.frames.size());
  return stack;
}

}  // namespace

void History::note_allocation(uint64_t start, uint64_t bytes) {
  const Stack here = stack_here();
  Guard hold(lock_);
  // Drop every older record that overlaps, even if it was larger or began elsewhere.
  auto before = lives_.upper_bound(start);
  if (before != lives_.begin() && start - std::prev(before)->first < std::prev(before)->second.bytes)
    --before;
  while (before != lives_.end() && before->first < start + bytes) before = lives_.erase(before);
  if (!host::is_short()) lives_[start] = {start, bytes, false, here, {}};
}

void History::note_free(uint64_t start) {
  const Stack here = stack_here();
  Guard hold(lock_);
  const auto found = lives_.find(start);
  if (found == lives_.end() || found->second.freed) return;
  if (host::is_short()) {
    lives_.erase(found);
    return;
  }
  found->second.freed = true;
  found->second.returned = here;
  freed_[++ages_] = start;
  while (freed_.size() > kMostFreed) {
    const auto oldest = lives_.find(freed_.begin()->second);
    if (oldest != lives_.end() && oldest->second.freed) lives_.erase(oldest);
    freed_.erase(freed_.begin());
  }
}

bool History::find(uint64_t address, Life* out) {
  Guard hold(lock_);
  auto next = lives_.upper_bound(address);
  if (next == lives_.begin()) return false;
  --next;
  if (address - next->first >= next->second.bytes) return false;
  *out = next->second;
  return true;
}

}  // namespace cupool::hooks
