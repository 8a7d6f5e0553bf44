// Holds submissions back while memory goes back to the driver, whose free waits for all work of the context
// and holds up other threads' launches meanwhile: work that one of them submits in that moment may wait for
// what it submits next. A submission is the fast side of base/asymmetric_fence.hpp, with a flag in its
// thread's slot; the thread that closes the gate is the rare side. Closing never waits for a submission under
// way: it may be one that waits for the device.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/asymmetric_fence.hpp"
#include "base/lock.hpp"

namespace cupool::order {

class SubmissionGate {
  struct alignas(64) Slot {
    std::atomic<bool> is_inside{false};
    std::atomic<int> thread{0};  // 0: free
  };

 public:
  // Around a submission and the note of it.
  class Pass {
   public:
    [[gnu::always_inline]] Pass() : slot_(*(mine_ != nullptr ? mine_ : enroll())) {
      if (!fence_.try_enter(slot_.is_inside)) [[unlikely]]
        wait_until_open(slot_);
    }
    [[gnu::always_inline]] ~Pass() { AsymmetricFence::exit(slot_.is_inside); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Slot& slot_;
  };

  // Tries to close the gate for as long as this exists; with `tries` false, does nothing.
  class Closing {
   public:
    explicit Closing(bool tries = true) : is_closed_(tries && close()) {}
    ~Closing() {
      if (is_closed_) open();
    }
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;
    // True: no submission is under way and all earlier ones are noted; none begins. False: one is under way,
    // another thread has closed the gate, or the order of both is not certain any more.
    bool is_closed() const { return is_closed_; }

   private:
    const bool is_closed_;
  };

  static void forget_after_fork();

 private:
  // Threads that submit; with more at once, the gate does not close any more. A page of slots costs memory
  // once a thread has used it.
  static constexpr size_t kMostThreads = 32768;

  [[gnu::noinline]] static Slot* enroll();
  [[gnu::noinline]] static void wait_until_open(Slot& slot);
  static bool close() CUPOOL_NO_THREAD_SAFETY_ANALYSIS;
  static void open() CUPOOL_NO_THREAD_SAFETY_ANALYSIS;
  static bool is_empty();

  [[gnu::visibility("hidden")]] static constinit thread_local Slot* mine_;
  static inline constinit AsymmetricFence fence_;
  static inline constinit std::atomic<bool> is_overfull_{false};
  static inline constinit std::atomic<size_t> used_{0};
  static inline constinit Lock enrolling_{Rank::kGateSlots};
  static inline constinit Lock closing_{Rank::kGateClosed};  // held while the gate is closed
  static inline constinit size_t looked_at_ CUPOOL_GUARDED_BY(enrolling_) = 0;  // the next slot to look at
  static Slot slots_[kMostThreads];
  static Slot rest_;  // of all threads that found no slot
};

}  // namespace cupool::order
