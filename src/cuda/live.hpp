// The contexts and streams that the program got through us, for two questions that the driver answers only
// for one at a time: which context an error has ended, and whether any stream captures. Under its own lock,
// which is held while the driver is asked about a stream, so that a stream leaves this list before it is
// destroyed. Those queries neither wait nor call back.
#pragma once

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "base/no_destroy.hpp"
#include "cuda/real.hpp"

namespace cupool::cuda {

class Live {
 public:
  void add(CUcontext context);
  void add(CUstream stream, CUcontext context);
  void remove(CUstream stream);
  // Removes a context that may be about to end, with its streams; they can be put back if it did not.
  struct Taken {
    CUcontext context = nullptr;
    std::vector<CUstream> streams;
  };
  Taken take(CUcontext context);
  void put_back(const Taken& taken);
  std::vector<CUcontext> contexts();

  // From now on a capture may begin or end unseen: the program has an entry point that we do not know.
  void expect_untracked_work() { has_untracked_work_.store(true, std::memory_order_relaxed); }
  // Whether a stream captures without our having seen the capture begin, as far as the driver can be asked: a
  // stream created behind our back, or another thread's per-thread default stream, is found only if it is a
  // blocking one.
  bool may_be_capturing();

  void forget_after_fork();

 private:
  struct Stream {
    CUstream stream;
    CUcontext context;
  };

  Lock lock_{Rank::kLive};
  NoDestroy<std::vector<CUcontext>> contexts_ CUPOOL_GUARDED_BY(lock_);
  NoDestroy<std::vector<Stream>> streams_ CUPOOL_GUARDED_BY(lock_);
  std::atomic<bool> has_untracked_work_{false};
};

[[gnu::visibility("hidden")]] extern constinit Live live;

}  // namespace cupool::cuda
