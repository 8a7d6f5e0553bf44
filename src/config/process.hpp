// What the process is, whatever the program does to its own memory later: its name, its rank in a job, its
// rights, its environment. Only this folder reads the environment.
#pragma once

#include <cstdint>

namespace cupool::config {

// Copies the name under which the program was started, and notes the time. Called when the library is loaded:
// a program that sets its title later writes over the place where the kernel put its name. Without this call
// the first question does it.
void remember_program();
const char* program();
// When that was, in nanoseconds of the wall clock: files written later are stamped with later moments.
int64_t started_at();

// Whether the process runs with more rights than its caller (set-uid, file capabilities: AT_SECURE). Then no
// setting is read: the environment is the caller's.
bool has_raised_rights();

// The environment as it is now; empty with raised rights.
const char* const* environment();
// One entry of it, or null.
const char* variable(const char* name);

// This process's number in a parallel job, as its launcher says in the environment; empty outside of one.
const char* rank();
// Where programs are looked for: PATH, or what the system takes without one.
const char* program_path();
// What LD_LIBRARY_PATH and LD_PRELOAD say; empty when they are not set.
const char* library_path();
const char* preloaded();

}  // namespace cupool::config
