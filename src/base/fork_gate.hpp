// Keeps descriptors of ours out of fork children, which would hold on to memory of the device or to a
// connection. Where such a descriptor must be in the program's table, it is opened, used and closed under a
// NoFork; a fork() of another thread waits that long. Either waits for half a second at most: the program's
// own handlers of fork() may wait for a lock under which another thread has come here. One that stays open is
// noted before the NoFork ends, by its owner, which closes it in the child. vfork() and posix_spawn() do not
// wait: what they start is soon another program, and our descriptors are closed on exec.
#pragma once

namespace cupool {

class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

 private:
  const bool is_held_;
};

// For pthread_atfork(). The child resets the gate with all else (after_fork.hpp).
void close_fork_gate();
void open_fork_gate();

}  // namespace cupool
