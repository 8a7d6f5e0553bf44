// The calls that must not outlive their context: what such a call gets from the driver while the context ends
// dies with it, and must not be kept for the next context, which may have the same handle. So nothing is
// begun there any more, and what is under way is waited for. The list is under `lock_`, which is a leaf: it
// is held for a few instructions, never while a call is made. A thread that uses cut memory has a cheaper
// form of the same, a flag of its cache (pool/thread_cache.hpp), which wait() is told of.
#pragma once

#include <sched.h>

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cupool::upstream {

// While one of these lives a context may have ended that its allocators do not know of yet, so that addresses
// in the page map may be somebody else's already.
class ContextEnding {
 public:
  ContextEnding() { under_way.fetch_add(1, std::memory_order_acq_rel); }
  ~ContextEnding() { under_way.fetch_sub(1, std::memory_order_acq_rel); }
  ContextEnding(const ContextEnding&) = delete;
  ContextEnding& operator=(const ContextEnding&) = delete;

  static bool is_under_way() { return under_way.load(std::memory_order_acquire) != 0; }

 private:
  static inline constinit std::atomic<int> under_way{0};
};

class InFlight {
 public:
  static constexpr int kEveryDevice = -1;

  constexpr InFlight() = default;

  // kUse: the context does not end meanwhile. kRelease: the same, and memory is on its way to the driver,
  // which a thread that found none waits for.
  enum class Kind { kUse, kRelease };

  class Call {
   public:
    // `device`: whose memory is on its way.
    Call(InFlight& all, driver::Context context, Kind kind, int device = kEveryDevice);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // False: the context ends, has ended or has failed; nothing must be begun there.
    bool is_open() const { return is_open_; }

   private:
    friend class InFlight;
    InFlight& all_;
    const driver::Context context_;
    const Kind kind_;
    const int device_;
    bool is_open_ = false;
    Call* next_ = nullptr;
    Call* before_ = nullptr;
  };

  // The context is going away: no call begins there until ended().
  void begin_end(driver::Context context);
  // Until no call is under way there, and `is_in_use()` says no.
  template <typename F>
  void wait(driver::Context context, F&& is_in_use) {
    while (has_calls(context) || is_in_use()) sched_yield();
  }
  void ended(driver::Context context);
  // The context is of no use any more, but the program still holds it.
  void fail(driver::Context context);
  bool is_off(driver::Context context);

  // Until no other thread is giving memory of a device back. Of no other device: a release waits for work,
  // which may wait for the caller. pre: the calling thread is not giving any back.
  void wait_for_releases(int device);
  // Whether the lock can be had within a moment: not if a signal handler interrupted its holder on this
  // thread.
  bool can_be_asked();
  void forget_after_fork();

 private:
  bool is_off_locked(driver::Context context) const CUPOOL_REQUIRES(lock_);
  bool has_calls(driver::Context context);
  bool has_releases(int device);

  Lock lock_;
  Call* first_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  std::vector<driver::Context> ending_ CUPOOL_GUARDED_BY(lock_);
  std::vector<driver::Context> failed_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::upstream
