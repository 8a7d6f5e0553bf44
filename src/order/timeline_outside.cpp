// What threads and streams of other contexts ask of a timeline. Whatever they wait for may wait for them: so
// for old work of a block that they name, for frees of their own, and for all else not long.
#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

Epoch Timeline::leant_on_by(driver::Address block) {
  Guard hold(lock_);
  return leant_blocks_.of(block);
}

// The stream is no lane here: its handle may be that of one (the default streams), so no wait of its is
// noted. Other work of its context must not wait, so where the stream's wait could be lost, this thread
// waits: the program has ordered it after the allocation of the blocks, and so after the frees that they lean
// on.
bool Timeline::before_visit(Lane lane, driver::Stream stream, driver::Context context, Epoch asked) {
  Wait wait;
  {
    Guard hold(lock_);
    if (asked <= completed_.load(std::memory_order_relaxed) || !kLean) return true;
    // A captured call is not work; the launch of its graph is.
    if (gate_.is_capturing() && driver_.is_capturing(stream)) return true;
    if (Seal* const seal = seals_.covering(asked)) wait = begin_device_wait_locked(*seal);
  }
  if (wait.event == nullptr) return wait_for_all();
  const Made made = make_wait(lane, stream, context, wait.event, Beside::kNothing);
  {
    Guard hold(lock_);
    end_device_wait_locked(wait);
  }
  return made == Made::kYes || (made == Made::kLost && wait_for_old_work(asked));
}

namespace {

// What this thread has waited for in another context, in vain: as long as nothing more is done there, it does
// not wait again. A refused program asks for less and less, and what the work there waits for may be what
// the program does then.
struct InVain {
  const Timeline* timeline = nullptr;
  Epoch completed = 0;
};
constinit thread_local std::array<InVain, 4> waited_in_vain{};

}  // namespace

// A free that is not sealed yet gets a seal now, which covers newer work too: that is not waited for long.
bool Timeline::wait_for_frees_elsewhere(Epoch own, uint64_t others_ns) {
  const Epoch sealed = std::min(own, sealed_.load(std::memory_order_acquire));
  if (sealed > completed_.load(std::memory_order_acquire) && !wait_for(sealed)) return false;
  if (others_ns == 0) return true;
  InVain& last = waited_in_vain[reinterpret_cast<uintptr_t>(this) / sizeof(Timeline) % waited_in_vain.size()];
  if (last.timeline == this && last.completed == completed()) advance_from_outside();
  if (last.timeline == this && last.completed == completed()) return false;
  const uint64_t begin = now_ns();
  seal_for_completion();
  const bool is_over = wait_for_seals(others_ns);
  last = {!is_over && now_ns() - begin >= others_ns ? this : nullptr, completed()};
  return is_over;
}

}  // namespace cupool::order
