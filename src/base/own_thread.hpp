// A thread of our own in the program's process. All signals are blocked, since a signal is for the program's
// own threads; it has hardly any capabilities, since a program that gives up its own (capset concerns one
// thread alone) must not leave a thread that keeps them; and its stack has a size of its own, since the
// program's default may be as little as 16 KiB and calls of the driver need more. No lock.
#pragma once

#include <pthread.h>

namespace cupool {

// What a thread does. Its answer matters if it is the last one of a process whose main function has ended by
// pthread_exit(): kLast lets the process end as it would without us, by exit(0) on a thread that has the
// program's signals and a stack of the size that its threads have.
enum class ThreadEnds { kPlainly, kLast };
using OwnThread = ThreadEnds (*)(void* data);

// False: the system gives no thread. `joined`: the caller joins the thread by this; else it is detached.
bool start_own_thread(OwnThread run, void* data, const char* name, pthread_t* joined = nullptr);

// How many of them run. A thread that has just ended may still be one of the kernel's.
int count_own_threads();

// Drops what capabilities the calling thread has beyond the main thread's: to be called now and then. It has
// two at most, to change user and group: the C library lets all threads do that when one does, and ends the
// process if one of them cannot.
void follow_capabilities();

// Whether the program's main function has ended by pthread_exit(), and whether its last thread has ended
// since: none but ours are left. False where there is no /proc. Opens nothing.
bool has_main_ended();
bool are_only_own_threads_left();
// Whether the calling thread, which is none of ours, is the only one beside ours. False without /proc.
bool is_only_other_thread();

// Ends the calling thread with no system call but that: for a thread that finds itself under a filter of
// system calls, where the C library's way may be deadly.
[[noreturn]] void end_own_thread_now();

}  // namespace cupool
