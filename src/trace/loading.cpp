// See loading.hpp.
#include "trace/loading.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/clock.hpp"
#include "base/preserve_errno.hpp"

namespace cupool::trace {
namespace {

constexpr uint64_t kLately = 10'000'000'000;
// Of one stack; what is farther away is on another one.
constexpr uintptr_t kMostStack = 64 << 20;

constexpr size_t kMostCalls = 8;
constinit thread_local LoaderCall calls[kMostCalls] = {};
constinit thread_local size_t depth = 0;
constinit std::atomic<uint64_t> last{0};

// The place may be on a stack that is gone, or is none any more, so the kernel compares: a call that would
// move nobody from one place to the same, if these 32 bits stand there. (Those above them can be a
// signature.)
bool stands_at(const uintptr_t* slot, uintptr_t value) {
  const long answer =
      syscall(SYS_futex, slot, FUTEX_CMP_REQUEUE_PRIVATE, 0, nullptr, slot, static_cast<uint32_t>(value));
  // Where the kernel forbids this, nothing is known.
  return answer == 0 || (errno != EAGAIN && errno != EFAULT);
}

bool is_running(const LoaderCall& call, uintptr_t here) {
  if (call.top <= here || call.top - here > kMostStack) return false;
  return call.slot == nullptr || stands_at(call.slot, call.returns_to);
}

uintptr_t stack_pointer() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

void forget_what_returned(uintptr_t here) {
  while (depth != 0 && !is_running(calls[depth - 1], here)) --depth;
}

}  // namespace

void note_loader_call(const LoaderCall& call) {
  const PreserveErrno preserve;
  last.store(now_ns(), std::memory_order_relaxed);
  forget_what_returned(stack_pointer());
  if (depth == kMostCalls) return;
  calls[depth] = call;
  ++depth;
}

bool is_inside_loader() {
  if (depth == 0) [[likely]]
    return false;
  const PreserveErrno preserve;
  forget_what_returned(stack_pointer());
  return depth != 0;
}

bool has_loaded_lately(uint64_t now) {
  const uint64_t then = last.load(std::memory_order_relaxed);
  return then != 0 && now - then < kLately;
}

}  // namespace cupool::trace
