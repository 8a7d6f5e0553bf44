// The identity of the process: its name (also if the program overwrites it later), its rank in a job, its
// privileges, its environment. Only this folder reads the environment.
#pragma once

#include <cstdint>

namespace cupool::config {

// Copies the name under which the program was started, and notes the time. Called when the library is loaded:
// a program that sets its title later overwrites the place where the kernel put its name. Without this call
// the first query does the same.
void remember_program();
const char* program();
// The time of that call, in nanoseconds of the wall clock: files written later have later timestamps.
int64_t started_at();

// Whether the process has more privileges than its caller (set-uid, file capabilities: AT_SECURE). Then no
// setting is read, because the environment is the caller's.
bool has_raised_rights();

// The environment as it is now; empty with raised rights.
const char* const* environment();
// One entry of it, or null.
const char* variable(const char* name);

// Sets a variable that is not set, if the environment asks for a trace. While the library is loaded alone,
// when no thread can be reading it.
void set_if_tracing(const char* name, const char* value);

// This process's number in a parallel job, as its launcher says in the environment; empty outside of one.
const char* rank();
// The search path for programs: PATH, or the system's default without one.
const char* program_path();
// The values of LD_LIBRARY_PATH and LD_PRELOAD; empty when they are not set.
const char* library_path();
const char* preloaded();

}  // namespace cupool::config
