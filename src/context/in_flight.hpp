// The calls that must not outlive their context: memory that such a call gets from the driver dies with the
// context and must not be cached for the next one, which may have the same handle. So the end of a context
// stops new calls and waits for those in flight. The list is under `lock_`, a leaf: held for a few
// instructions, never across a call. The pool uses a cheaper form, a flag in the thread cache
// (pool/owner_handshake.hpp), which wait() checks through a callback.
#pragma once

#include <sched.h>

#include <vector>

#include "base/lock.hpp"
#include "driver/types.hpp"

namespace cupool::context {

class InFlight {
 public:
  constexpr InFlight() = default;

  // kUse: the context does not end meanwhile. kRelease: the same, and memory is on its way to the driver; a
  // thread that is out of memory waits for it.
  enum class Kind { kUse, kRelease };

  class Call {
   public:
    // `device`: whose memory is on its way.
    Call(InFlight& all, driver::Context context, Kind kind, int device = driver::kEveryDevice);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // False: the context is ending, has ended or has failed; begin nothing there.
    bool is_open() const { return is_open_; }

   private:
    friend class InFlight;
    InFlight& all_;
    const driver::Context context_;
    const Kind kind_;
    const int device_;
    bool is_open_ = false;
    uint64_t number_ = 0;
    Call* next_ = nullptr;
    Call* before_ = nullptr;
  };

  // The context is ending: no call begins there until ended().
  void begin_end(driver::Context context);
  // Waits until no call is in flight there and `is_in_use()` is false.
  template <typename F>
  void wait(driver::Context context, F&& is_in_use) {
    while (has_calls(context) || is_in_use()) sched_yield();
  }
  void ended(driver::Context context);
  // The context has failed, but the program still holds it.
  void fail(driver::Context context);
  bool is_off(driver::Context context);

  // Waits for the threads that are releasing memory of a context. Not for those that begin meanwhile, of
  // which there may be no end. pre: the calling thread is not releasing any. False: there was none.
  bool wait_for_releases_of(driver::Context context);
  // The same, and then for so long at most for those that release memory of the device in other contexts:
  // such a release waits for work, which may wait for the caller.
  bool wait_for_releases(int device, driver::Context context, uint64_t others_ns);
  // For so long at most, in whatever context.
  bool wait_for_releases(int device, uint64_t most_ns) {
    return wait_for_releases_until(device, most_ns, begun());
  }
  // Whether the lock becomes free within a moment: not if a signal handler interrupted its holder on this
  // thread.
  bool can_be_asked();
  void forget_after_fork();

 private:
  bool is_off_locked(driver::Context context) const CUPOOL_REQUIRES(lock_);
  bool has_calls(driver::Context context);
  bool has_releases(int device, driver::Context context, uint64_t newest);
  uint64_t begun();
  bool wait_for_releases_until(int device, uint64_t most_ns, uint64_t newest);

  Lock lock_{Rank::kInFlight};
  Call* first_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  uint64_t calls_ CUPOOL_GUARDED_BY(lock_) = 0;  // ever begun
  std::vector<driver::Context> ending_ CUPOOL_GUARDED_BY(lock_);
  std::vector<driver::Context> failed_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::context
