// The life of the process: its first use of CUDA, its forks, its end. Nothing happens before the first use,
// so a process without CUDA pays nothing and leaves no trace. In a forked child the pool does not serve: CUDA
// does not survive a fork, and what the child inherited is not its own. Only a parent that had not yet begun,
// but had looked up names or asked for the version, leaves a child that may use CUDA; its first context
// proves it.
#pragma once

namespace cupool::hooks {

// Whether this process has used CUDA, and is not a forked child of one that did.
bool is_alive();
// Whether it is such a child.
bool is_forked();
// The driver has given this process a context.
void context_made();
// Looks for the C library's exit(), before a signal handler may need it.
void find_exit();
// The last moment at which the driver still answers.
void before_the_driver_ends();

}  // namespace cupool::hooks
