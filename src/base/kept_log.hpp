// Lines of a thread that has no stderr, because its table of descriptors is its own (own_files.hpp): they are
// kept until another thread says them. One such thread, and one that says them, which take turns by
// themselves; what does not fit is dropped. See log.hpp.
#pragma once

namespace cupool::log {

// From now on lines of this thread are kept.
void keep_lines_of_this_thread();
bool has_kept_lines();
// Says what was kept, on a thread with the program's stderr.
void say_kept_lines();

}  // namespace cupool::log
