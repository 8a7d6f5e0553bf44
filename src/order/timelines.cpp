// See timelines.hpp. `lock_` is taken before a timeline's own, never under it.
#include "order/timelines.hpp"

#include <new>

#include "base/log.hpp"
#include "report/ledger.hpp"
#include "trace/dealings.hpp"

namespace cupool::order {

Timeline* Timelines::find(driver::Context context) const {
  if (context == nullptr) return nullptr;
  for (const auto& slot : all_) {
    Timeline* const timeline = slot.load(std::memory_order_acquire);
    if (timeline == nullptr || timeline->context() == context) return timeline;
  }
  return nullptr;
}

Timeline* Timelines::of(driver::Context context) {
  if (Timeline* const known = find(context)) return known;
  join(context);
  Guard hold(lock_);
  if (Timeline* const known = find(context)) return known;
  for (auto& slot : all_) {
    Timeline* timeline = slot.load(std::memory_order_relaxed);
    if (timeline == nullptr) {
      timeline = new (std::nothrow) Timeline(*driver_, gate_, contexts_);
      if (timeline == nullptr) return nullptr;
    } else if (timeline->context() != nullptr) {
      continue;
    }
    if (has_untracked_work_.load(std::memory_order_relaxed)) timeline->expect_untracked_work();
    if (completed_only_.load(std::memory_order_relaxed)) timeline->use_completed_only();
    if (direct_.load(std::memory_order_relaxed) || (contexts_.has_peers(context) && kPeersDone))
      timeline->expect_direct_access();
    if (contexts_.count() > 1) timeline->expect_visits();
    timeline->begin(context, has_early_work_.load(std::memory_order_relaxed));
    slot.store(timeline, std::memory_order_release);
    refresh_locked();
    return timeline;
  }
  return nullptr;
}

void Timelines::refresh_locked() {
  Timeline* only = nullptr;
  for_each([&](Timeline& timeline) { only = &timeline; });
  only_.store(contexts_.count() == 1 ? only : nullptr, std::memory_order_release);
}

void Timelines::join(driver::Context context) {
  if (!contexts_.add(context)) return;
  Guard hold(lock_);
  refresh_locked();
  if (contexts_.count() > 1) for_each([](Timeline& timeline) { timeline.expect_visits(); });
}

void Timelines::end_timeline(driver::Context context) {
  Guard hold(lock_);
  if (Timeline* const timeline = find(context)) timeline->end();
  refresh_locked();
}

void Timelines::leave(driver::Context context) {
  contexts_.remove(context);
  end_timeline(context);
}

void Timelines::begin_end(driver::Context context, uint64_t ending) {
  contexts_.begin_end(context, ending);
  end_timeline(context);
}

// A timeline that began while its end was under way knew of no access.
void Timelines::ended(uint64_t ending, bool gone) {
  const driver::Context with_peers = contexts_.ended(ending, gone);
  Timeline* timeline = nullptr;
  {
    Guard hold(lock_);
    refresh_locked();
    timeline = find(with_peers);
  }
  if (timeline != nullptr && kPeersDone) timeline->expect_direct_access();
}

// Waits without the lock, as expect_direct_access() does.
void Timelines::expect_peers(driver::Context owner, const char* reason) {
  const char* none = nullptr;
  reason_.compare_exchange_strong(none, reason, std::memory_order_acq_rel);
  const Reuse before = reuse();
  join(owner);
  Timeline* timeline = nullptr;
  {
    Guard hold(lock_);
    if (!contexts_.note_peers(owner)) direct_.store(true, std::memory_order_relaxed);
    timeline = find(owner);
  }
  trace::tell_order(trace::Ordering::kDirectAccess, 0, 0, owner);
  if (timeline != nullptr && kPeersDone) timeline->expect_direct_access();
  tell_change(before, reason);
}

void Timelines::expect_untracked_work(const char* reason) {
  const char* none = nullptr;
  reason_.compare_exchange_strong(none, reason, std::memory_order_acq_rel);
  const Reuse before = reuse();
  {
    Guard hold(lock_);
    has_untracked_work_.store(true, std::memory_order_relaxed);
  }
  report::note_mode();
  trace::tell_order(trace::Ordering::kUntracked);
  // Each makes its context wait, which may stand, so not under the lock.
  for_each([](Timeline& timeline) { timeline.expect_untracked_work(); });
  tell_change(before, reason);
}

void Timelines::use_completed_only(const char* reason) {
  reason_.store(reason, std::memory_order_release);
  const Reuse before = reuse();
  trace::tell_order(trace::Ordering::kCompletedOnly);
  {
    Guard hold(lock_);
    completed_only_.store(true, std::memory_order_relaxed);
    for_each([](Timeline& timeline) { timeline.use_completed_only(); });
  }
  report::note_mode();
  tell_change(before, reason);
}

void Timelines::expect_direct_access(const char* reason) {
  use_completed_only(reason);
  {
    Guard hold(lock_);
    direct_.store(true, std::memory_order_relaxed);
  }
  trace::tell_order(trace::Ordering::kDirectAccess);
  // Each may wait for its work, so not under the lock.
  for_each([](Timeline& timeline) { timeline.expect_direct_access(); });
}

// With CUPOOL_LOG=verbose, in the words of the report's mode.
void Timelines::tell_change(Reuse before, const char* reason) const {
  const Reuse now = reuse();
  if (now == before || !log::is_verbose()) return;
  if (now == Reuse::kOrder) {
    log::detail("mode fences from now on, memory is reused in the order of whole contexts: {}", reason);
  } else {
    log::detail("mode exact from now on, memory is reused only when its work is done: {}", reason);
  }
}

const char* Timelines::reason() const {
  const char* const reason = reason_.load(std::memory_order_acquire);
  return reason == nullptr && reuse() == Reuse::kCompleted ? kGates : reason;
}

Reuse Timelines::reuse() const {
  if (completed_only_.load(std::memory_order_relaxed)) return Reuse::kCompleted;
  Reuse reuse = has_untracked_work_.load(std::memory_order_relaxed) ? Reuse::kOrder : Reuse::kLean;
  for_each([&](const Timeline& timeline) {
    if (timeline.reuse() == Reuse::kCompleted) reuse = Reuse::kCompleted;
  });
  return reuse;
}

void Timelines::note_value_wait() {
  if (completed_only_.load(std::memory_order_relaxed)) return;
  contexts_.note_value_wait();
  bool several = false;
  for_each([&](Timeline& timeline) { several = several || timeline.has_several_threads(); });
  if (several) use_completed_only(kGates);
}

void Timelines::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  gate_.forget_after_fork();
  contexts_.forget_after_fork();
  for (auto& slot : all_) {
    if (Timeline* const timeline = slot.load(std::memory_order_relaxed)) timeline->forget_after_fork();
  }
  only_.store(nullptr, std::memory_order_relaxed);
}

}  // namespace cupool::order
