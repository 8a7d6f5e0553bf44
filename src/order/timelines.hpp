// The process's timelines, one for each context with memory of ours, and what concerns all of them: captures,
// untracked work, access from one context to another one's memory. Grows under `lock_`, is read without it; a
// timeline is never freed, and serves another context when its own has ended.
#pragma once

#include <array>
#include <atomic>

#include "context/resident.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

class Timelines final : public context::Resident {
 public:
  constexpr explicit Timelines(driver::Driver* driver) : driver_(driver) {}

  // The timeline of every submission, if the process has one context with memory of ours. Null: use find(),
  // there may be none or several.
  Timeline* only() const { return only_.load(std::memory_order_acquire); }
  // Whether there is any.
  bool any() const { return all_[0].load(std::memory_order_acquire) != nullptr; }
  // Null: the context has no memory of ours.
  Timeline* find(driver::Context context) const;
  // The same, made if there is none. Null: no host memory, or too many contexts.
  Timeline* of(driver::Context context);

  // A context of the program begins; it serves no more.
  void join(driver::Context context);
  void leave(driver::Context context);
  void begin_end(driver::Context context, uint64_t ending) override;
  void ended(uint64_t ending, bool gone) override;
  // Work of other contexts may touch memory of `owner` from now on: it is reused only when its old work is
  // done, since no wait can tell their work that uses it from the rest. Before the program learns of it;
  // waits for the old work of what is handed out already.
  void expect_peers(driver::Context owner, const char* reason);

  CaptureGate& gate() { return gate_; }
  bool is_capturing() const { return gate_.is_capturing(); }

  // For all timelines, future ones too. `reason` must live forever.
  void expect_untracked_work(const char* reason);
  void use_completed_only(const char* reason);
  void expect_direct_access(const char* reason);
  // The program uses waits that only a later submission ends. With several threads, one may have to release
  // what another's free would have waited for: from then on cupool makes nothing wait.
  void note_value_wait();
  // Work is submitted to a context without memory of ours, and thus without a timeline: those to come begin
  // with pending work.
  void note_early_work() {
    if (!has_early_work_.load(std::memory_order_relaxed))
      has_early_work_.store(true, std::memory_order_relaxed);
  }
  // Why reuse does not follow lanes; null: it does.
  const char* reason() const;
  // The kind of reuse in force, or the one that the first timeline will have.
  Reuse reuse() const;

  template <typename F>
  void for_each(F&& f) const {
    for (const auto& slot : all_) {
      Timeline* const timeline = slot.load(std::memory_order_acquire);
      if (timeline == nullptr) return;
      if (timeline->context() != nullptr) f(*timeline);
    }
  }

  void forget_after_fork();

 private:
  void tell_change(Reuse before, const char* reason) const;
  void refresh_locked() CUPOOL_REQUIRES(lock_);
  void end_timeline(driver::Context context);

  driver::Driver* driver_;
  CaptureGate gate_;
  Contexts contexts_;
  std::atomic<Timeline*> only_{nullptr};
  std::atomic<const char*> reason_{nullptr};
  std::atomic<bool> has_untracked_work_{false};
  std::atomic<bool> completed_only_{false};
  std::atomic<bool> direct_{false};
  std::atomic<bool> has_early_work_{false};
  Lock lock_{Rank::kTimelines};
  std::array<std::atomic<Timeline*>, Contexts::kMost> all_{};
};

}  // namespace cupool::order
