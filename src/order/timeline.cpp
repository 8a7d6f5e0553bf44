// The slow path of a timeline: everything that changes its words, under `lock_`. The order of the stores is
// part of the rules (docs/order.md): `idle_` is cleared first, the number goes up before the record, a lane's
// wait is noted after it was made. Waits on the host without the lock.
#include "order/timeline.hpp"

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/preserve_errno.hpp"
#include "report/ledger.hpp"
#include "stats/counters.hpp"
#include "trace/dealings.hpp"

namespace cupool::order {

using driver::kSuccess;

namespace {

// The sleep between two polls of a host wait: shorter than most kernels of a program that frees memory,
// longer than a poll takes.
constexpr uint64_t kPollInterval = 20'000;

// A program that uses another stream now and then does not count as one whose streams take turns.
constexpr uint32_t kFewWaits = 16;

void count_context_wait() {
  stats::count(stats::Event::context_waits);
  trace::tell_order(trace::Ordering::kContextWait);
}

void count_pool_wait(uint64_t ns) {
  stats::count(stats::Event::pool_waits);
  stats::count(stats::Event::pool_wait_ns, ns);
  trace::tell_pool_wait(ns);
}

}  // namespace

Lane Timeline::in_use_locked() const {
  return has_untracked_work_ ? Lane::kMany : unite(noted_.load(std::memory_order_relaxed), seals_.lanes());
}

// Recomputes the words that the hot path of an allocation reads, whenever what they depend on has changed.
void Timeline::refresh_locked() {
  const Lane in_use = in_use_locked();
  one_lane_.store(in_use != Lane::kMany && reuse() == Reuse::kLean, std::memory_order_release);
  idle_.store(in_use == Lane::kNone || !kFence, std::memory_order_release);
}

// Clears `idle_` before the note is stored: a thread that finds its lane noted already may free and allocate
// at once, and must not read a stale `idle_`.
void Timeline::add_noted_locked(Lane lanes) {
  if (lanes != Lane::kNone) idle_.store(!kFence, std::memory_order_release);
  noted_.store(unite(noted_.load(std::memory_order_relaxed), lanes), std::memory_order_release);
  refresh_locked();
}

void Timeline::note(Lane lane) {
  Guard hold(lock_);
  const Lane noted = noted_.load(std::memory_order_relaxed);
  if (noted != Lane::kNone && noted != lane) stats::count(stats::Event::lane_changes);
  note_thread_locked();
  if (!turns_.has(lane)) {
    quiet_.store(Lane::kNone, std::memory_order_release);
    turns_.change(lane, Reentry::work_mark());
  }
  if (in_use_locked() == Lane::kNone) close_idle_epoch_locked();
  if (!kNote) return;
  add_noted_locked(lane);
  const bool are_many = noted_.load(std::memory_order_relaxed) == Lane::kMany && turns_.has(Lane::kMany);
  quiet_.store(are_many ? Lane::kMany : lane, std::memory_order_release);
}

// Blocks freed while no work was pending are done and stay so: the work that begins now belongs to a new
// epoch.
void Timeline::close_idle_epoch_locked() {
  const Epoch epoch = open_.load(std::memory_order_relaxed);
  open_.store(epoch + 1, std::memory_order_release);
  complete_locked(epoch);
}

void Timeline::leave_turn_open() {
  Guard hold(lock_);
  if (turns_.name() == LaneName::kNone) return;
  quiet_.store(Lane::kNone, std::memory_order_release);
  turns_.leave_open();
}

// Notes a thread that submits or frees. Where streams wait for values in memory, one thread may have to
// submit what another's free would have waited for: with a second thread, nothing is made to wait from now
// on.
void Timeline::note_thread_locked() {
  if (thread_ == nullptr) thread_ = &thread_token_;
  if (thread_ != &thread_token_) several_threads_.store(true, std::memory_order_relaxed);
  if (!has_several_threads() || !contexts_.has_value_waits() || reuse() == Reuse::kCompleted) return;
  reuse_.store(Reuse::kCompleted, std::memory_order_seq_cst);
  trace::tell_order(trace::Ordering::kCompletedOnly, 0, 0, context());
  report::note_mode();
  refresh_locked();
  log::detail("mode exact from now on, memory is reused only when its work is done: {}", kGates);
}

// ---- Seals.

// Closes the open epoch and returns its number. The lanes noted so far go with it, and the number goes up
// before anything is recorded: blocks whose work the record misses are freed with a newer stamp.
Epoch Timeline::open_next_locked() {
  const Epoch epoch = open_.load(std::memory_order_relaxed);
  sealer_ = nullptr;
  seals_.push(epoch, noted_.load(std::memory_order_relaxed));
  idle_.store(!kFence, std::memory_order_release);
  quiet_.store(Lane::kNone, std::memory_order_release);
  noted_.store(Lane::kNone, std::memory_order_release);
  if (kNumberFirst) open_.store(epoch + 1, std::memory_order_release);
  return epoch;
}

// (Where the thread may make calls during a capture, this one would still take the capturing streams along.)
bool Timeline::seal_locked(Kind kind, trace::Ordering told_as) {
  if (CaptureGate::is_relaxed() || !seals_.has_event()) return false;
  if (failed_ || !driver_.has_context_events() || !gate_.enter(context())) return false;
  const Epoch epoch = open_next_locked();
  const driver::Event event = seals_.take_event();
  const bool recorded = driver_.record(context(), event) == kSuccess;
  if (!kNumberFirst) open_.store(epoch + 1, std::memory_order_release);
  gate_.leave(context());
  if (!recorded) {
    seals_.give_event(event);
    add_noted_locked(seals_.abandon(epoch));
    return false;
  }
  stats::count(stats::Event::seals);
  trace::tell_order(told_as, 0, epoch, context());
  Seal& seal = seals_.newest();
  seal.event = event;
  seal.in_free = kind == Kind::kInFree || !kSealInFree;
  if (seal.in_free) sealed_.store(epoch, std::memory_order_release);
  if (kind == Kind::kInFree) sealer_ = &thread_token_;
  refresh_locked();
  return true;
}

void Timeline::seal_in_free(bool matters) {
  if (!driver_.has_context_events()) {
    wait_for_all();
    return;
  }
  order_owed();
  if (driver_.may_be_capturing()) return;
  if (!wants_spare_.load(std::memory_order_relaxed) && seal_if_event(matters)) return;
  keep_events();
  seal_if_event(matters);
}

// False: there is no event.
bool Timeline::seal_if_event(bool matters) {
  if (matters) {
    if (!lock_.try_lock_for_a_moment()) return true;
  } else if (!lock_.try_lock()) {
    return true;
  }
  note_thread_locked();
  if (in_use_locked() == Lane::kNone) {
    lock_.unlock();
    return true;
  }
  bool has_event = true;
  // Nothing was submitted since the last seal, so its event covers all work on blocks with the open stamp: it
  // serves for the open epoch as well.
  const bool is_covered = noted_.load(std::memory_order_relaxed) == Lane::kNone && !seals_.empty() &&
                          seals_.newest().in_free && !has_untracked_work_;
  if (is_covered) {
    const Epoch epoch = open_.load(std::memory_order_relaxed);
    seals_.newest().epoch = epoch;
    open_.store(epoch + 1, std::memory_order_release);
    sealed_.store(epoch, std::memory_order_release);
    sealer_ = &thread_token_;
  } else {
    has_event = seals_.has_event();
    seal_locked(Kind::kInFree);
  }
  if (polls_in_ == 0) {
    poll_locked(trace::Ordering::kDoneAtFree);
  } else {
    --polls_in_;
  }
  lock_.unlock();
  return has_event;
}

void Timeline::wait_in_free() {
  seal_in_free(true);
  wait_for(sealed_.load(std::memory_order_acquire));
}

void Timeline::seal_for_completion() {
  if (driver_.may_be_capturing() || !lock_.try_lock()) return;
  seal_locked(Kind::kForCompletion);
  lock_.unlock();
}

void Timeline::complete_locked(Epoch epoch) {
  if (epoch <= completed_.load(std::memory_order_relaxed)) return;
  seals_.retire(epoch);
  completed_.store(epoch, std::memory_order_release);
  set_ordered_locked(std::max(epoch, ordered_.load(std::memory_order_relaxed)));
  sealed_.store(std::max(epoch, sealed_.load(std::memory_order_relaxed)), std::memory_order_release);
  if (demands_.highest() <= epoch) demand_.store(0, std::memory_order_release);
  refresh_locked();
}

// By how often the driver was asked a replay knows which of its own questions finds what this one found.
// Those of a look of our own thread do not count: of the looks in vain it knows nothing.
void Timeline::poll_locked(trace::Ordering told_as) {
  if (seals_.empty() || failed_ || gate_.is_capturing()) return;
  const uint64_t before = seals_.questions();
  const Epoch done = seals_.newest_done(driver_, &failed_);
  const uint64_t now = seals_.questions();
  const bool is_look = told_as == trace::Ordering::kDoneAtLook;
  if (done != 0) {
    trace::tell_order(told_as, 0, done, context(), is_look ? 0 : before - asked_before_);
    asked_before_ = is_look ? now : before;
  } else if (is_look) {
    asked_before_ += now - before;
  }
  count_decided_locked();
  complete_locked(done);
  polls_in_ = std::clamp(seals_.size(), kFewestBetweenPolls, kMostBetweenPolls);
}

void Timeline::advance() {
  order_owed();
  advance_from_outside();
}

void Timeline::advance_from_outside() {
  if (driver_.may_be_capturing() || !lock_.try_lock()) return;
  poll_locked();
  lock_.unlock();
}

bool Timeline::is_all_before_last_free() {
  Guard hold(lock_);
  return !has_untracked_work_ && noted_.load(std::memory_order_relaxed) == Lane::kNone &&
         (seals_.empty() || sealer_ == &thread_token_);
}

bool Timeline::is_only_thread() {
  Guard hold(lock_);
  return !has_several_threads() && (thread_ == nullptr || thread_ == &thread_token_);
}

void Timeline::expect_completion() {
  if (!lock_.try_lock()) return;
  // Where work may be submitted unseen, a capture may begin unseen, too, at any moment of the program's.
  if (!has_untracked_work_) {
    using trace::Ordering;
    if (!seals_.has_event()) poll_locked(Ordering::kDoneAtLook);
    if (noted_.load(std::memory_order_relaxed) != Lane::kNone)
      seal_locked(Kind::kForCompletion, Ordering::kSealAtLook);
    poll_locked(Ordering::kDoneAtLook);
  }
  lock_.unlock();
}

// Work that begins after a quiet time opens an epoch of its own.
void Timeline::look_if_quiet() {
  const Epoch now = open();
  const bool idle = is_idle();
  was_quiet_.store(idle && now == looked_at_, std::memory_order_relaxed);
  looked_at_ = idle ? now : 0;
  if (!idle) expect_completion();
}

// ---- Hand-outs that lean on a seal.

void Timeline::raise_lean(Epoch stamp) {
  Epoch lean = lean_.load(std::memory_order_relaxed);
  while (lean < stamp && !lean_.compare_exchange_weak(lean, stamp, std::memory_order_seq_cst)) {
  }
}

// A lane that reads the new number looks up its demands under the lock.
void Timeline::demand_of_others(Epoch stamp, LaneName sole) {
  Guard hold(lock_);
  turns_.note_use();
  if (stamp <= completed_.load(std::memory_order_relaxed)) return;
  const Demands::Result result = demands_.add(stamp, sole);
  if (result.displaced > completed_.load(std::memory_order_relaxed)) raise_lean(result.displaced);
  if (result.is_new) demand_.store(++demands_made_, std::memory_order_release);
}

Epoch Timeline::newest_leant_on_locked() const {
  return std::max(lean_.load(std::memory_order_seq_cst), demands_.highest());
}

// Publishes the demand, then reads the mode; expect_untracked_work(), expect_direct_access() and
// expect_visits() do the reverse. So at least one sees the other, and no hand-out stays unordered. What is
// ordered in this context is still to be remembered for copies of others.
void Timeline::lean_on_seal(Epoch stamp, driver::Address block, LaneName sole) {
  if (stamp > ordered()) {
    if (stamp > lean_.load(std::memory_order_acquire)) {
      if (sole == LaneName::kNone) {
        raise_lean(stamp);
      } else {
        demand_of_others(stamp, sole);
      }
    }
    if (reuse() == Reuse::kOrder) {
      order(stamp);
    } else if (is_touched_directly()) {
      wait_for_old_work(stamp);
    }
  }
  if (!is_visited_.load(std::memory_order_seq_cst)) return;
  Guard hold(lock_);
  leant_blocks_.add(block, stamp, completed_.load(std::memory_order_relaxed));
}

bool Timeline::may_submit(Lane lane) const {
  const uint64_t demand = demand_.load(std::memory_order_acquire);
  const Epoch lean = lean_.load(std::memory_order_acquire);
  const bool is_over = lean <= completed_.load(std::memory_order_acquire);
  return (is_over && demand == 0) || waited_.has(lane, is_over ? 0 : lean, demand) || !kLean;
}

void Timeline::note_turn_locked() {
  if (++stream_waits_ >= kFewWaits)
    lanes_.store(std::max<size_t>(2, waited_.count()), std::memory_order_relaxed);
}

void Timeline::note_avoided_wait() {
  Guard hold(lock_);
  note_turn_locked();
}

// A wait may be lost beside a graph that another thread launches into the stream. The two give way to each
// other for a moment. Beside a launch that takes longer the wait is made by the whole context, if that is the
// seal's own: such a wait is not lost, and the driver's free would have waited for the same work. During a
// capture it cannot be: then for a time without launches, but not for long, since a launch may depend on this
// very thread.
Timeline::Made Timeline::make_wait(Lane lane, driver::Stream stream, driver::Context context,
                                   driver::Event event, Beside beside) {
  constexpr int kMostTurns = 400;
  const GraphLaunches::Place place(lane, context);
  driver::Status status = kSuccess;
  bool is_made = false;
  for (int turn = 0; !is_made && status == kSuccess; ++turn) {
    const bool is_last = turn == kMostTurns;
    if (const GraphLaunches::QuietMoment moment(place); moment.is_quiet() || is_last) {
      status = driver_.wait_on(stream, event);
      is_made = moment.has_lasted() || is_last;
      if (status == kSuccess && is_made) {
        stats::count(stats::Event::stream_waits);
        trace::tell_order(trace::Ordering::kStreamWait, reinterpret_cast<uint64_t>(stream));
      }
    }
    if (is_made || status != kSuccess) break;
    if (beside == Beside::kNothing && !driver_.may_be_capturing() && !gate_.is_capturing())
      return Made::kLost;
    if (beside == Beside::kContextWaits && !driver_.may_be_capturing() && gate_.enter(context)) {
      status = driver_.order_after(context, event);
      gate_.leave(context);
      is_made = true;
      if (status == kSuccess) count_context_wait();
    } else {
      Lock::wait_a_little(turn);
    }
  }
  if (status != kSuccess) refusal_.store(status, std::memory_order_relaxed);
  return status == kSuccess ? Made::kYes : Made::kRefused;
}

Timeline::Wait Timeline::begin_device_wait_locked(Seal& seal) {
  seals_.pin(seal);
  return {seal.epoch, seal.event, life_.load(std::memory_order_relaxed)};
}

// False: the context has ended meanwhile, and its events with it.
bool Timeline::end_device_wait_locked(const Wait& wait) {
  if (life_.load(std::memory_order_relaxed) != wait.life) return false;
  seals_.unpin(wait.event);
  return true;
}

// The first submission of a lane since a block was handed out that it may use. No wait is needed if the
// stream itself orders it: all unfinished work that the seal covers is in this lane. The wait is made without
// the lock: where another thread's launch stands in the stream's full queue, it stands there, too, and a
// third thread's submission may be what both wait for.
bool Timeline::wait_for_lean(Lane lane, driver::Stream stream) {
  Wait wait;
  uint64_t demand = 0;
  {
    Guard hold(lock_);
    demand = demand_.load(std::memory_order_relaxed);
    const Epoch asked = std::max(lean_.load(std::memory_order_acquire), demands_.of(turns_.find(lane)));
    // A captured call is not work; the launch of its graph is.
    if (gate_.is_capturing() && driver_.is_capturing(stream)) return true;
    if (asked <= completed_.load(std::memory_order_relaxed) || waited_.has(lane, asked, 0)) {
      waited_.set(lane, asked, demand);
      return true;
    }
    if (Seal* const seal = seals_.covering(asked)) {
      const Lane before = has_untracked_work_ ? Lane::kMany : seals_.lanes_up_to(seal->epoch);
      if (before == Lane::kNone || before == lane) {
        waited_.set(lane, seal->epoch, demand);
        return true;
      }
      wait = begin_device_wait_locked(*seal);
    }
  }
  // Without a seal (the driver has failed), wait for everything.
  if (wait.event == nullptr) return wait_for_all();
  const bool is_made = make_wait(lane, stream, context(), wait.event, Beside::kContextWaits) == Made::kYes;
  Guard hold(lock_);
  if (end_device_wait_locked(wait) && is_made) {
    note_turn_locked();
    // Only after the wait: another thread that finds this note submits to the stream at once. A lane that was
    // forgotten meanwhile, of which more is asked by now, stays so (waited_lanes.hpp).
    const bool is_newest = lean_.load(std::memory_order_acquire) <= wait.epoch &&
                           demand_.load(std::memory_order_relaxed) <= demand;
    if (is_newest || waited_.knows(lane)) waited_.set(lane, wait.epoch, demand);
  }
  return is_made;
}

// All later work of the context waits for the seal that covers `epoch`. It was recorded inside a free, so the
// driver's free would have waited for all that work. Without the lock, for the reason above.
bool Timeline::order(Epoch epoch) {
  Wait wait;
  driver::Context here = nullptr;
  {
    Guard hold(lock_);
    if (epoch <= ordered()) return true;
    Seal* const seal = seals_.covering(epoch);
    here = context();
    if (seal == nullptr || failed_) return false;
    if (!gate_.enter(here)) {
      owed_.store(std::max(epoch, owed_.load(std::memory_order_relaxed)), std::memory_order_release);
      return false;
    }
    wait = begin_device_wait_locked(*seal);
  }
  const driver::Status status = driver_.order_after(here, wait.event);
  gate_.leave(here);
  Guard hold(lock_);
  if (!end_device_wait_locked(wait) || status != kSuccess) return false;
  count_context_wait();
  // Where only completed blocks are handed out, the order alone makes none available.
  if (reuse() != Reuse::kCompleted)
    set_ordered_locked(std::max(wait.epoch, ordered_.load(std::memory_order_relaxed)));
  return true;
}

void Timeline::order_owed() {
  const Epoch owed = owed_.load(std::memory_order_acquire);
  if (owed > ordered() && !driver_.may_be_capturing()) order(owed);
}

bool Timeline::reach() {
  switch (reuse()) {
    case Reuse::kLean:
      return sealed_.load(std::memory_order_relaxed) > ordered();
    case Reuse::kOrder: {
      if (driver_.may_be_capturing()) return false;
      const Epoch sealed = sealed_.load(std::memory_order_acquire);
      return sealed > ordered() && order(sealed);
    }
    case Reuse::kCompleted:
      return false;
  }
  return false;
}

// ---- Waits on the host.

bool Timeline::wait_for(Epoch epoch) { return wait_for(epoch, Kind::kInFree, ~uint64_t{0}); }

bool Timeline::wait_for_old_work(Epoch epoch) {
  const CaptureGate::Relaxed relaxed;
  return wait_for(epoch);
}

bool Timeline::wait_for(Epoch epoch, Kind kind, uint64_t most_ns) {
  const uint64_t before = now_ns();
  const int saved_errno = errno;
  bool over = false;
  for (bool may_wait = CaptureGate::is_relaxed() || !driver_.may_be_capturing(); may_wait && !over;) {
    {
      Guard hold(lock_);
      poll_locked();
      over = epoch <= completed_.load(std::memory_order_relaxed);
      const bool is_covered = kind == Kind::kInFree ? seals_.covering(epoch) != nullptr : !seals_.empty();
      may_wait = !failed_ && !gate_.is_capturing() && is_covered;
    }
    may_wait = may_wait && now_ns() - before < most_ns;
    if (may_wait && !over && !move_clock(kPollInterval)) sleep_for(kPollInterval);
  }
  if (!over && most_ns != ~uint64_t{0}) {
    Guard hold(lock_);
    trace::tell_order(trace::Ordering::kInVain, 0, epoch, context(), seals_.questions() - asked_before_);
  }
  errno = saved_errno;
  count_pool_wait(now_ns() - before);
  return over;
}

Epoch Timeline::newest_leant_on() {
  Guard hold(lock_);
  return std::max(ordered(), newest_leant_on_locked());
}

bool Timeline::wait_for_leant() {
  const Epoch newest = newest_leant_on();
  return newest <= completed_.load(std::memory_order_acquire) || !kExports || wait_for(newest);
}

bool Timeline::wait_for_frees() {
  const Epoch sealed = sealed_.load(std::memory_order_acquire);
  return sealed <= completed_.load(std::memory_order_acquire) || wait_for(sealed);
}

bool Timeline::wait_for_seals(uint64_t most_ns) {
  const Epoch newest = open() - 1;
  return newest <= completed_.load(std::memory_order_acquire) ||
         wait_for(newest, Kind::kForCompletion, most_ns);
}

bool Timeline::wait_for_all() {
  const driver::Context here = context();
  if (driver_.may_be_capturing() || !gate_.enter(here)) return false;
  Epoch epoch = 0;
  {
    Guard hold(lock_);
    epoch = open_next_locked();
    refresh_locked();
  }
  const uint64_t before = now_ns();
  const driver::Status status = driver_.synchronize(here);
  if (status != kSuccess) refusal_.store(status, std::memory_order_relaxed);
  count_pool_wait(now_ns() - before);
  end_wait(epoch, status == kSuccess);
  gate_.leave(here);
  return status == kSuccess;
}

// ---- Untracked work.

void Timeline::expect_untracked_work() {
  Epoch newest = 0;
  {
    Guard hold(lock_);
    has_untracked_work_ = true;
    if (reuse() == Reuse::kLean) reuse_.store(Reuse::kOrder, std::memory_order_seq_cst);
    refresh_locked();
    newest = newest_leant_on_locked();
  }
  order(newest);
}

// Blocks that are ordered but not done count as leant on meanwhile.
void Timeline::lower_ordered_locked() {
  raise_lean(ordered());
  set_ordered_locked(completed_.load(std::memory_order_relaxed));
}

// Where other contexts' streams visit, a block that is ordered in this one alone is not ordered everywhere.
void Timeline::set_ordered_locked(Epoch epoch) {
  const bool is_visited = is_visited_.load(std::memory_order_relaxed);
  ordered_.store(epoch, std::memory_order_release);
  ordered_everywhere_.store(is_visited ? completed_.load(std::memory_order_relaxed) : epoch,
                            std::memory_order_release);
}

void Timeline::use_completed_only() {
  Guard hold(lock_);
  reuse_.store(Reuse::kCompleted, std::memory_order_seq_cst);
  report::note_mode();
  // Blocks that are ordered but not done are no longer handed out.
  lower_ordered_locked();
  refresh_locked();
}

void Timeline::expect_direct_access() {
  direct_.store(true, std::memory_order_seq_cst);
  use_completed_only();
  const CaptureGate::Relaxed relaxed;
  wait_for_leant();
}

// What was handed out before counts as leaning on the newest of it all.
void Timeline::expect_visits() {
  wants_spare_.store(true, std::memory_order_relaxed);
  Guard hold(lock_);
  if (is_visited_.load(std::memory_order_relaxed)) return;
  is_visited_.store(true, std::memory_order_seq_cst);
  leant_blocks_.raise_floor(std::max(newest_leant_on_locked(), ordered()));
  set_ordered_locked(ordered_.load(std::memory_order_relaxed));
}

// ---- The life of a context.

void Timeline::begin(driver::Context context, bool has_work) {
  Guard hold(lock_);
  failed_ = false;
  thread_ = nullptr;
  asked_to_count_ = 0;
  if (has_work) add_noted_locked(Lane::kMany);
  asked_before_ = seals_.questions();
  life_.store(next_life(), std::memory_order_relaxed);
  context_.store(context, std::memory_order_release);
}

void Timeline::end() {
  Guard hold(lock_);
  const Epoch epoch = open_.load(std::memory_order_relaxed);
  seals_.forget_all();
  spare_ = nullptr;
  has_no_spare_ = false;
  wants_spare_.store(false, std::memory_order_relaxed);
  waited_.drop_all();
  quiet_.store(Lane::kNone, std::memory_order_release);
  noted_.store(Lane::kNone, std::memory_order_release);
  open_.store(epoch + 1, std::memory_order_release);
  sealed_.store(epoch, std::memory_order_release);
  completed_.store(epoch, std::memory_order_release);
  set_ordered_locked(epoch);
  demand_.store(0, std::memory_order_release);
  // The next context begins as every context does: Timelines says what is known of it.
  has_untracked_work_ = false;
  reuse_.store(Reuse::kLean, std::memory_order_seq_cst);
  direct_.store(false, std::memory_order_seq_cst);
  is_visited_.store(false, std::memory_order_seq_cst);
  leant_blocks_.clear();
  owed_.store(0, std::memory_order_release);
  context_.store(nullptr, std::memory_order_release);
  refresh_locked();
}

void Timeline::forget_after_fork() {
  lock_.reset_after_fork();
  end();
}

}  // namespace cupool::order
