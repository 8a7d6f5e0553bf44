// The second background thread: the clock of both, and all that is done with files. Its table of descriptors
// is its own (base/own_files.hpp), so it makes no call of the driver; those are the other one's, with which
// it plays a round (round.hpp) now and then. It publishes the figures to neighbours, hears what they ask for,
// writes the metrics file and the trace, and sees when the program has no other thread left. Where the
// program has put itself under a filter of system calls, it ends at once.
#pragma once

#include "base/own_thread.hpp"

namespace cupool::hooks {

class Handover;

// The thread. `data`: a Handover.
ThreadEnds work_on_files(void* data);

// A thread has much to be gathered for a trace.
void wake_file_thread_to_gather();

// Both threads are to end; may be called again and again until they have.
void end_file_thread();
// Forgets that, for the next ones.
void keep_file_thread();

}  // namespace cupool::hooks
