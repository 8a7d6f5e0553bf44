// A thread of our own in the program's process: detached, with all signals blocked, since a signal is for
// the program's own threads, and with a stack of its own size, since the program's default may be as little
// as 16 KiB and calls of the driver need more.
#pragma once

namespace cupool {

// False: the system gives no thread.
bool start_own_thread(void* (*run)(void*), void* data);

}  // namespace cupool
