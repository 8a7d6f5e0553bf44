// The process's timelines, one for each context that has memory of ours, and what concerns all of them:
// captures, doubt, contexts that reach each other. Grows under `lock_`, is read without it; a timeline is
// never freed, and serves another context when its own has ended.
#pragma once

#include <array>
#include <atomic>

#include "order/timeline.hpp"

namespace cupool::order {

class Timelines {
 public:
  constexpr explicit Timelines(driver::Driver* driver) : driver_(driver) {}

  // The timeline of every submission, where the process has one context and memory of ours in it. Null: look
  // for it, there may be none or several.
  Timeline* only() const { return only_.load(std::memory_order_acquire); }
  // Whether there is any.
  bool any() const { return all_[0].load(std::memory_order_acquire) != nullptr; }
  // Null: nothing of ours is there.
  Timeline* find(driver::Context context) const;
  // The same, made if there is none. Null: no host memory, or too many contexts.
  Timeline* of(driver::Context context);

  // The program has this context; the program's context has ended.
  void join(driver::Context context);
  void leave(driver::Context context);
  // Work of one context may touch memory of another. Before the driver is told.
  void connect(const char* reason);

  CaptureGate& gate() { return gate_; }
  bool is_capturing() const { return gate_.is_capturing(); }

  // For all timelines, those to come too. `reason` must live forever.
  void distrust(const char* reason);
  void use_completed_only(const char* reason);
  void expect_direct_access(const char* reason);
  // The program uses waits that only a later submission ends. From several threads, a thread may have to
  // release what another one's free would have waited for: nothing is made to wait any more.
  void note_gate();
  // Why freed memory is not reused as lanes allow; null: it is.
  const char* reason() const;
  // Which kind of reuse there is, or would be.
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
  void refresh_locked() CUPOOL_REQUIRES(lock_);

  driver::Driver* driver_;
  CaptureGate gate_;
  Contexts contexts_;
  std::atomic<Timeline*> only_{nullptr};
  std::atomic<const char*> reason_{nullptr};
  std::atomic<bool> blind_{false};
  std::atomic<bool> completed_only_{false};
  std::atomic<bool> direct_{false};
  Lock lock_;
  std::array<std::atomic<Timeline*>, Contexts::kMost> all_{};
};

}  // namespace cupool::order
