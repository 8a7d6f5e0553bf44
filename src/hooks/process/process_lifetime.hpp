// The life of the process: its first use of CUDA, its forks, its end. Nothing happens before the first use,
// so a process without CUDA pays nothing and leaves no trace. In a fork child the pool does not serve: CUDA
// does not survive a fork, and inherited blocks belong to the parent. The exception is a parent that had only
// looked up names or asked for the version: its child may use CUDA, and proves it by getting a context.
#pragma once

namespace cupool::hooks {

// Whether this process has used CUDA, and is not a fork child of one that did.
bool is_alive();
// Whether the caller is not a child that borrows its memory, as vfork() makes them.
bool is_own_process();
// Whether it is such a fork child.
bool is_forked();
// The driver has given this process a context.
void context_made();
// Looks up the C library's exit() before a signal handler may need it.
void find_exit();

}  // namespace cupool::hooks
