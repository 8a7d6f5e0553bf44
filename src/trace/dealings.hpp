// How the lower layers tell a trace of their dealings with the driver. All of it on paths that call the
// driver anyway; with no trace each is a test of one word. The reason for what happens is noted by whoever
// begins it, for the thread that it happens on. No lock.
#pragma once

#include "trace/recorder.hpp"

namespace cupool::trace {

namespace detail {
inline constinit thread_local Why why{};
inline constinit std::atomic<uint64_t> order_turn{1};
}  // namespace detail

// Changes whenever pending work may have got another meaning: memory came or went, or an epoch did. Work that
// is submitted later is told anew.
inline void note_order_turn() { detail::order_turn.fetch_add(1, std::memory_order_relaxed); }
inline uint64_t order_turn() { return detail::order_turn.load(std::memory_order_relaxed); }

// Until its end memory goes back, and comes, for this reason.
class Because {
 public:
  explicit Because(Why why) : before_(detail::why) { detail::why = why; }
  ~Because() { detail::why = before_; }
  Because(const Because&) = delete;
  Because& operator=(const Because&) = delete;

 private:
  const Why before_;
};

inline void tell_segment(Dealing what, int device, uint64_t address, uint64_t bytes, uint64_t ns = 0) {
  if (is_on()) [[unlikely]]
    record_inside(told::Segment{what, address, bytes, ns, detail::why, static_cast<uint64_t>(device)});
}
inline void tell_order(Ordering what, uint64_t stream = 0, uint64_t epoch = 0, const void* context = nullptr,
                       uint64_t asked = 0) {
  if (!is_on()) [[likely]]
    return;
  note_order_turn();
  record_inside(told::Ordered{what, stream, epoch, reinterpret_cast<uint64_t>(context), asked});
}
// The pool itself waited on the host. `call`: none of the program's.
inline void tell_pool_wait(uint64_t ns) {
  if (!is_on()) [[likely]]
    return;
  told::Waited what{};
  what.ns = ns;
  what.cause = Cause::kPool;
  what.call = ~uint64_t{0} >> 48;  // none
  record_inside(what);
}
inline void tell_out_of_memory(int device, uint64_t asked) {
  if (is_on()) [[unlikely]]
    record_inside(told::OutOfMemory{asked, static_cast<uint64_t>(device)});
}

}  // namespace cupool::trace
