// The contexts and streams that the program got through us, for two questions that the driver answers of one
// at a time only: which context an error has ended, and whether any stream captures. Under a lock of its own,
// which is held while the driver is asked about a stream: a stream that is destroyed must leave this list
// first. Neither waits nor calls back there.
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
  // A context that may be about to end, with its streams. What comes out can be put back if it did not.
  struct Taken {
    CUcontext context = nullptr;
    std::vector<CUstream> streams;
  };
  Taken take(CUcontext context);
  void put_back(const Taken& taken);
  std::vector<CUcontext> contexts();

  // From now on a capture may begin or end unseen: the program has an entry point that we do not know.
  void distrust_notes() { distrusted_.store(true, std::memory_order_relaxed); }
  // Whether a stream captures that nobody told us of, as far as can be asked: a stream that was made behind
  // our back, or another thread's own default stream, is only seen if it is a blocking one.
  bool may_be_capturing();

  void forget_after_fork();

 private:
  struct Stream {
    CUstream stream;
    CUcontext context;
  };

  Lock lock_;
  NoDestroy<std::vector<CUcontext>> contexts_ CUPOOL_GUARDED_BY(lock_);
  NoDestroy<std::vector<Stream>> streams_ CUPOOL_GUARDED_BY(lock_);
  std::atomic<bool> distrusted_{false};
};

[[gnu::visibility("hidden")]] extern constinit Live live;

}  // namespace cupool::cuda
