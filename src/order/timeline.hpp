// When may memory that the application freed be handed out again? One timeline per process answers for all
// contexts, for work of one context can touch memory of another. docs/order.md argues every rule and names
// the races. Owns: the epochs, what is known of the streams in use, the guard. All state changes happen under
// `lock_`; the words in the first cache line are read without it. `lock_` is held across record, query and
// order_after (the model needs these steps whole) but never across a call the application made.
#pragma once

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/lane.hpp"
#include "order/rules.hpp"
#include "order/seals.hpp"

namespace cupool::order {

class Timeline {
 public:
  constexpr explicit Timeline(driver::Driver* driver = nullptr) : seals_(driver) {}

  // ---- Hot path: no lock, no call.

  // The stamp of a block that is freed now. pre: the application's last launch on it has returned.
  Epoch open() const { return open_.load(std::memory_order_acquire); }
  // Whether everything that touched a block with this stamp is ordered before any GPU work submitted from now
  // on.
  bool is_safe(Epoch stamp) const { return stamp <= safe_.load(std::memory_order_acquire) || !kFence; }
  Epoch safe() const { return kFence ? safe_.load(std::memory_order_acquire) : ~Epoch{0}; }
  // Whether it is over, so that the host or another device may write there too.
  bool is_completed(Epoch stamp) const {
    return stamp <= completed_.load(std::memory_order_acquire) || !kFence;
  }
  Epoch completed() const { return kFence ? completed_.load(std::memory_order_acquire) : ~Epoch{0}; }
  // Whether freed memory may be handed out whatever its stamp, because all unfinished work is in one lane.
  // Read it after the block was taken from wherever it lay: what was noted before the free is then seen.
  bool is_granted() const { return grant_.load(std::memory_order_acquire); }
  // The highest stamp that may be handed out now. The same rule: read it under the lock under which the block
  // lies.
  Epoch newest_usable() const { return is_granted() ? ~Epoch{0} : safe(); }

  // Around every call that submits work to `lane`. False: the work must not be submitted, for what it may
  // touch can neither be ordered nor waited for. No driver that still works does that.
  [[nodiscard]] bool before_submit(Lane lane) { return may_submit(lane) || leave_guarded_lane(lane); }
  // Whether there is nothing to do before.
  bool may_submit(Lane lane) const {
    const Lane guard = guard_.load(std::memory_order_acquire);
    return guard == Lane::kNone || guard == lane || !kGuard;
  }
  // The driver's answer to the wait that failed: what it would have said to the submission too.
  driver::Status refusal() const { return refusal_.load(std::memory_order_relaxed); }
  void after_submit(Lane lane) {
    const Lane noted = noted_.load(std::memory_order_acquire);
    if (noted != lane && noted != Lane::kMany && kNote) note(lane);
  }

  // Before a block is looked for: a grant that can be had is worth having, for without it only old memory is
  // used, and what was just freed, and fits best, is passed over.
  void prefer_grant() {
    if (!is_granted()) request_grant();
  }

  // ---- Allocation, when the hot path said no.

  // Tries to make `is_granted()` true: sets the guard for the one lane in use, or orders a lane that is left
  // behind.
  bool request_grant() { return !is_many_.load(std::memory_order_relaxed) && ask_for_grant(); }
  // Looks which seals are done; then, if `seal` says so or no seal is under way, makes one. The more are
  // under way, the seldomer: a seal costs microseconds in the driver. Gives up at once if another thread is
  // at it.
  void advance(bool seal);
  // Everything freed so far becomes safe for all later GPU work: ordered on the device where that can be
  // done, else by waiting. False: neither could be done (a capture, an error).
  bool barrier();
  // The same for the host and other devices: waits until all work is over. False during a capture or after an
  // error.
  bool wait_for_all();

  // Around calls of ours that a capture would not survive: none begins meanwhile. False: one runs already.
  bool begin_call();
  void end_call();

  // ---- What the application does.

  // Its own waits prove something: call begin before, end after. `lane` kMany stands for the whole context.
  // begin returns 0 when the wait would prove nothing.
  Epoch begin_wait(Lane lane);
  void end_wait(Epoch epoch, bool succeeded);
  void destroy_stream(Lane lane);
  void begin_capture();
  void end_capture();
  bool is_capturing() const { return captures_.load(std::memory_order_acquire) != 0; }
  void join(driver::Context context);
  void leave(driver::Context context);

  // Lanes off, for good: something may submit work that we do not see. `reason` must live forever.
  void distrust(const char* reason);
  // CUPOOL_STREAMS=fences.
  void use_fences_only() { distrust("CUPOOL_STREAMS=fences"); }
  // Where streams take turns faster than a grant is worth its barrier, none is given for so long; 0: always.
  void hold_grants_for(uint64_t nanoseconds);
  // The host or other devices may touch any memory at any time: nothing is handed out before its old work is
  // over.
  void use_completed_only(const char* reason);
  const char* distrusted_because() const { return distrusted_.load(std::memory_order_acquire); }
  size_t contexts();

  // Only in a forked child: there is no work, no context and no other thread.
  void forget_after_fork();

 private:
  bool ask_for_grant();
  bool holds_grants_locked() CUPOOL_REQUIRES(lock_);
  void note_trip_locked() CUPOOL_REQUIRES(lock_);
  bool leave_guarded_lane(Lane lane);
  void note(Lane lane);
  bool seal_is_worth_it_locked() CUPOOL_REQUIRES(lock_);
  bool seal_locked() CUPOOL_REQUIRES(lock_);
  bool barrier_locked() CUPOOL_REQUIRES(lock_);
  void poll_locked() CUPOOL_REQUIRES(lock_);
  void complete_locked(Epoch epoch) CUPOOL_REQUIRES(lock_);
  Epoch open_next_locked() CUPOOL_REQUIRES(lock_);
  bool settle_guard();
  void clear_guard_locked() CUPOOL_REQUIRES(lock_);
  void add_noted_locked(Lane lanes) CUPOOL_REQUIRES(lock_);
  void refresh_locked() CUPOOL_REQUIRES(lock_);
  Lane in_use_locked() const CUPOOL_REQUIRES(lock_);
  void raise_safe_locked() CUPOOL_REQUIRES(lock_);

  alignas(64) std::atomic<Epoch> open_{1};
  std::atomic<Epoch> safe_{0};       // the larger of ordered_ and completed_
  std::atomic<Epoch> completed_{0};  // the highest epoch whose work is over
  std::atomic<bool> grant_{false};
  std::atomic<Lane> guard_{Lane::kNone};  // the lane on whose strength blocks were handed out unordered …
  std::atomic<Lane> noted_{Lane::kNone};  // lanes given work since the last seal
  std::atomic<uint32_t> captures_{0};
  std::atomic<bool> is_many_{false};  // no grant can be had: nobody need wait for the lock to ask
  std::atomic<const char*> distrusted_{nullptr};
  std::atomic<driver::Status> refusal_{driver::kUnknown};

  alignas(64) Lock lock_;
  bool completed_only_ CUPOOL_GUARDED_BY(lock_) = false;
  size_t seals_asked_ CUPOOL_GUARDED_BY(lock_) = 0;  // since the last one was made
  uint32_t waits_ CUPOOL_GUARDED_BY(lock_) = 0;      // of ours, under way: a capture must not begin meanwhile
  Epoch guard_epoch_ CUPOOL_GUARDED_BY(lock_) = 0;   // … and the epoch in which that was
  Epoch ordered_ CUPOOL_GUARDED_BY(lock_) = 0;       // the highest epoch that later work was told to wait for
  // Grants that were taken back soon after they were given, one after the other, and what follows from them.
  static constexpr uint64_t kQuickNs = 200'000;
  static constexpr uint32_t kMostQuickTrips = 4;
  uint64_t hold_ns_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t granted_at_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t held_until_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint32_t quick_trips_ CUPOOL_GUARDED_BY(lock_) = 0;
  Seals seals_;
};

}  // namespace cupool::order
