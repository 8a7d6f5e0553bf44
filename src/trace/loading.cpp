// See loading.hpp.
#include "trace/loading.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>

#include "base/clock.hpp"
#include "base/preserve_errno.hpp"

namespace cupool::trace {
namespace {

constexpr uint64_t kLately = 10'000'000'000;
// Of one stack; what is farther away is on another one.
constexpr uintptr_t kMostStack = 64 << 20;

struct Call {
  const uintptr_t* slot;
  uintptr_t top;
  uintptr_t returns_to;
};
constexpr size_t kMostCalls = 8;
constinit thread_local Call calls[kMostCalls] = {};
constinit thread_local size_t depth = 0;
constinit std::atomic<uint64_t> last{0};

// (The place may be on a stack that is gone, or is none any more.)
bool read_word(const uintptr_t* from, uintptr_t* to) {
  iovec local = {to, sizeof *to};
  iovec remote = {const_cast<uintptr_t*>(from), sizeof *from};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof *to);
}

bool is_running(const Call& call, uintptr_t here) {
  if (call.top <= here || call.top - here > kMostStack) return false;
  uintptr_t now = 0;
  if (call.slot == nullptr) return true;
  // Where the kernel forbids this, nothing is known.
  return !read_word(call.slot, &now) || now == call.returns_to;
}

uintptr_t stack_pointer() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

void forget_what_returned(uintptr_t here) {
  while (depth != 0 && !is_running(calls[depth - 1], here)) --depth;
}

}  // namespace

void note_loader_call(const uintptr_t* slot, uintptr_t top) {
  const PreserveErrno preserve;
  last.store(now_ns(), std::memory_order_relaxed);
  forget_what_returned(stack_pointer());
  if (depth == kMostCalls) return;
  calls[depth] = {slot, top, slot == nullptr ? 0 : *slot};
  ++depth;
}

bool is_inside_loader() {
  if (depth == 0) [[likely]]
    return false;
  forget_what_returned(stack_pointer());
  return depth != 0;
}

bool has_loaded_lately(uint64_t now) {
  const uint64_t then = last.load(std::memory_order_relaxed);
  return then != 0 && now - then < kLately;
}

}  // namespace cupool::trace
