// The slow half of the timeline: everything that changes its words, under `lock_`. The order of the stores is
// part of the rules (docs/order.md): the grant goes first, the number goes up before the record. Waits on the
// host without the lock.
#include "order/timeline.hpp"

#include <sched.h>

#include <algorithm>

#include "stats/counters.hpp"

namespace cupool::order {

using driver::kSuccess;

Lane Timeline::in_use_locked() const {
  if (distrusted_because() != nullptr || seals_.contexts() > 1) return Lane::kMany;
  return unite(noted_.load(std::memory_order_relaxed), seals_.lanes());
}

// The one word the hot path of an allocation looks at, made anew whenever something it depends on changed.
void Timeline::refresh_locked() {
  const Lane in_use = in_use_locked();
  const Lane guard = guard_.load(std::memory_order_relaxed);
  const bool guarded =
      guard == in_use && (!kGuardEpoch || guard_epoch_ == open_.load(std::memory_order_relaxed));
  const bool grant = !is_capturing() && in_use != Lane::kMany && (in_use == Lane::kNone || guarded);
  grant_.store(grant || !kFence, std::memory_order_release);
  is_many_.store(in_use == Lane::kMany || holds_grants_locked(), std::memory_order_relaxed);
}

void Timeline::clear_guard_locked() { guard_.store(Lane::kNone, std::memory_order_release); }

void Timeline::raise_safe_locked() {
  const Epoch completed = completed_.load(std::memory_order_relaxed);
  safe_.store(completed_only_ ? completed : std::max(ordered_, completed), std::memory_order_release);
}

// The grant goes before the note comes: a thread that finds its lane noted already may free and allocate at
// once, and must not find a grant from before the note.
void Timeline::add_noted_locked(Lane lanes) {
  grant_.store(!kFence, std::memory_order_release);
  noted_.store(unite(noted_.load(std::memory_order_relaxed), lanes), std::memory_order_release);
  refresh_locked();
}

void Timeline::note(Lane lane) {
  Guard hold(lock_);
  if (noted_.load(std::memory_order_relaxed) != Lane::kNone) stats::count(stats::Event::lane_changes);
  add_noted_locked(lane);
}

// The first submission to another stream after an unordered hand-out: what was handed out may be used there.
bool Timeline::leave_guarded_lane(Lane lane) {
  {
    Guard hold(lock_);
    const Lane guard = guard_.load(std::memory_order_relaxed);
    if (guard == Lane::kNone || guard == lane) return true;
    stats::count(stats::Event::guard_trips);
    // A launch that overlaps its predecessor trips it too, but does not make its stream one of many.
    if (lane != Lane::kOverlapping) note_trip_locked();
    if (barrier_locked()) return true;
  }
  if (wait_for_all()) return true;
  // A capture that began meanwhile settled the guard first, by a wait of its own.
  Guard hold(lock_);
  const Lane guard = guard_.load(std::memory_order_relaxed);
  return guard == Lane::kNone || guard == lane;
}

void Timeline::hold_grants_for(uint64_t nanoseconds) {
  Guard hold(lock_);
  hold_ns_ = nanoseconds;
}

void Timeline::note_trip_locked() {
  if (hold_ns_ == 0) return;
  const uint64_t now = stats::now_ns();
  quick_trips_ = now - granted_at_ < kQuickNs ? quick_trips_ + 1 : 0;
  if (quick_trips_ > kMostQuickTrips) held_until_ = now + hold_ns_;
}

bool Timeline::holds_grants_locked() {
  if (held_until_ != 0 && stats::now_ns() >= held_until_) held_until_ = 0;
  return held_until_ != 0;
}

// Orders what was handed out unordered, if anything was. False: it could not be done.
bool Timeline::settle_guard() {
  {
    Guard hold(lock_);
    if (guard_.load(std::memory_order_relaxed) == Lane::kNone || barrier_locked()) return true;
  }
  return wait_for_all();
}

bool Timeline::ask_for_grant() {
  Guard hold(lock_);
  const Lane in_use = in_use_locked();
  if (is_capturing() || in_use == Lane::kMany || holds_grants_locked()) return false;
  const Lane guard = guard_.load(std::memory_order_relaxed);
  if (in_use != Lane::kNone) {
    if (guard != Lane::kNone && guard != in_use && !barrier_locked()) return false;
    if (guard != in_use && hold_ns_ != 0) granted_at_ = stats::now_ns();
    guard_.store(in_use, std::memory_order_release);
    guard_epoch_ = open_.load(std::memory_order_relaxed);
  }
  refresh_locked();
  return grant_.load(std::memory_order_relaxed);
}

// Closes the open epoch and returns its number. The lanes noted so far go with it, and the number goes up
// before anything is recorded: work that the record misses is freed with a new stamp.
Epoch Timeline::open_next_locked() {
  const Epoch epoch = open_.load(std::memory_order_relaxed);
  seals_.push(epoch, noted_.load(std::memory_order_relaxed));
  grant_.store(!kFence, std::memory_order_release);
  noted_.store(Lane::kNone, std::memory_order_release);
  if (kNumberFirst) open_.store(epoch + 1, std::memory_order_release);
  return epoch;
}

bool Timeline::seal_locked() {
  if (is_capturing() || seals_.contexts() == 0 || !seals_.driver()->has_context_events()) return false;
  const Epoch epoch = open_next_locked();
  stats::count(stats::Event::seals);
  const bool recorded = seals_.record_newest();
  if (!kNumberFirst) open_.store(epoch + 1, std::memory_order_release);
  add_noted_locked(recorded ? Lane::kNone : seals_.abandon(epoch));
  return recorded;
}

bool Timeline::barrier_locked() {
  if (!seal_locked()) return false;
  const Epoch epoch = open_.load(std::memory_order_relaxed) - 1;
  if (!seals_.order_after_newest()) return false;
  stats::count(stats::Event::barriers);
  ordered_ = epoch;
  raise_safe_locked();
  seals_.forget_lanes();
  clear_guard_locked();
  refresh_locked();
  return true;
}

void Timeline::complete_locked(Epoch epoch) {
  if (epoch <= completed_.load(std::memory_order_relaxed)) return;
  seals_.retire(epoch);
  completed_.store(epoch, std::memory_order_release);
  raise_safe_locked();
  if (guard_epoch_ <= epoch) clear_guard_locked();
  refresh_locked();
}

void Timeline::poll_locked() {
  if (!is_capturing()) complete_locked(seals_.newest_done());
}

bool Timeline::seal_is_worth_it_locked() {
  if (seals_asked_++ < seals_.size() / 2) return false;
  seals_asked_ = 0;
  return true;
}

void Timeline::advance(bool seal) {
  if (!lock_.try_lock()) return;
  poll_locked();
  // Nothing else tells a driver without context events that grants are no longer held back.
  if (held_until_ != 0 && !holds_grants_locked()) refresh_locked();
  // The first one may be over at once; behind others that are not, none is.
  const bool first = seals_.empty();
  if ((first || (seal && seal_is_worth_it_locked())) && seal_locked() && first) poll_locked();
  lock_.unlock();
}

bool Timeline::barrier() {
  {
    Guard hold(lock_);
    if (!completed_only_ && barrier_locked()) return true;
  }
  return wait_for_all();
}

bool Timeline::wait_for_all() {
  std::vector<driver::Context> contexts;
  Epoch epoch = 0;
  {
    Guard hold(lock_);
    if (is_capturing()) return false;
    contexts = seals_.context_list();
    epoch = open_next_locked();
    ++waits_;
    refresh_locked();
  }
  const uint64_t before = stats::now_ns();
  bool over = true;
  for (driver::Context context : contexts) {
    const driver::Status status = seals_.driver()->synchronize(context);
    if (status == kSuccess) continue;
    over = false;
    refusal_.store(status, std::memory_order_relaxed);
  }
  stats::count(stats::Event::pool_waits);
  stats::count(stats::Event::pool_wait_ns, stats::now_ns() - before);
  end_wait(epoch, over);
  Guard hold(lock_);
  --waits_;
  return over;
}

bool Timeline::begin_call() {
  Guard hold(lock_);
  if (is_capturing()) return false;
  ++waits_;
  return true;
}

void Timeline::end_call() {
  Guard hold(lock_);
  --waits_;
}

Epoch Timeline::begin_wait(Lane lane) {
  Guard hold(lock_);
  if (is_capturing()) return 0;
  // A context's own wait says nothing of another context's work.
  if (seals_.contexts() > 1) return 0;
  if (lane != Lane::kMany) {
    // Nor one stream's of lanes that a barrier has made us forget: they are ordered, but perhaps not over.
    if (ordered_ > completed_.load(std::memory_order_relaxed)) poll_locked();
    if (ordered_ > completed_.load(std::memory_order_relaxed) || in_use_locked() != lane) return 0;
  }
  const Epoch epoch = open_next_locked();
  refresh_locked();
  return epoch;
}

void Timeline::end_wait(Epoch epoch, bool succeeded) {
  if (epoch == 0) return;
  Guard hold(lock_);
  if (!kNumberFirst) open_.store(epoch + 1, std::memory_order_release);
  if (succeeded) {
    complete_locked(epoch);
    return;
  }
  add_noted_locked(seals_.abandon(epoch));
}

void Timeline::destroy_stream(Lane lane) {
  if (!kDestroyBarrier) return;
  {
    Guard hold(lock_);
    const Lane in_use = in_use_locked();
    if (in_use != lane && in_use != Lane::kMany && guard_.load(std::memory_order_relaxed) != lane) return;
    if (barrier_locked()) return;
  }
  if (wait_for_all()) return;
  // Neither can be done during a capture: then nothing may lean on this handle any more.
  Guard hold(lock_);
  if (guard_.load(std::memory_order_relaxed) == lane) guard_.store(Lane::kMany, std::memory_order_release);
  add_noted_locked(Lane::kMany);
}

void Timeline::begin_capture() {
  for (bool can_settle = true;;) {
    {
      Guard hold(lock_);
      // While something captures no barrier can be made, so none may be owed; and a wait of ours would break
      // it.
      const bool owes =
          guard_.load(std::memory_order_relaxed) != Lane::kNone && can_settle && !is_capturing();
      if (!owes && waits_ == 0) {
        captures_.fetch_add(1, std::memory_order_release);
        refresh_locked();
        return;
      }
    }
    can_settle = settle_guard();
    sched_yield();
  }
}

void Timeline::end_capture() {
  Guard hold(lock_);
  if (captures_.load(std::memory_order_relaxed) != 0) captures_.fetch_sub(1, std::memory_order_release);
  refresh_locked();
}

void Timeline::join(driver::Context context) {
  bool alone = true;
  {
    Guard hold(lock_);
    seals_.join(context);
    alone = seals_.contexts() == 1;
    refresh_locked();
  }
  // From now on lanes cannot be told apart; what leans on the old guard gets its order here.
  if (!alone) settle_guard();
}

void Timeline::leave(driver::Context context) {
  Guard hold(lock_);
  seals_.leave(context);
  refresh_locked();
}

size_t Timeline::contexts() {
  Guard hold(lock_);
  return seals_.contexts();
}

void Timeline::distrust(const char* reason) {
  {
    Guard hold(lock_);
    if (distrusted_because() != nullptr) return;
    distrusted_.store(reason, std::memory_order_release);
    refresh_locked();
  }
  settle_guard();
}

void Timeline::use_completed_only(const char* reason) {
  {
    Guard hold(lock_);
    if (completed_only_) return;
    completed_only_ = true;
    raise_safe_locked();
  }
  distrust(reason);
}

void Timeline::forget_after_fork() {
  lock_.reset_after_fork();
  Guard hold(lock_);
  seals_.forget_all();
  captures_.store(0, std::memory_order_relaxed);
  waits_ = 0;
  noted_.store(Lane::kNone, std::memory_order_relaxed);
  clear_guard_locked();
  refresh_locked();
}

}  // namespace cupool::order
