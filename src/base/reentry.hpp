// The re-entry guard, one count per thread. While our code is inside the real driver, an entry point that the
// driver (or a library it calls back) reaches on the same thread must act as if we were not there: it would
// otherwise count twice, or ask for a lock that this thread holds. Thread-local, initial-exec: reading it
// costs one load and never allocates.
#pragma once

namespace cupool {

class Reentry {
 public:
  Reentry() { ++depth_; }
  ~Reentry() { --depth_; }
  Reentry(const Reentry&) = delete;
  Reentry& operator=(const Reentry&) = delete;

  // Whether this thread is inside a call of ours to the driver.
  static bool inside() { return depth_ != 0; }

 private:
  static inline constinit thread_local int depth_ = 0;
};

}  // namespace cupool
