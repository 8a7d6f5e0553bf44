// The verbs of the `cupool` command. Each gets the arguments behind its name and returns the exit code.
#pragma once

namespace cupool::tools {

inline constexpr int kMisuse = 2;       // the command line makes no sense
inline constexpr int kCannotRun = 126;  // found, but not to be executed
inline constexpr int kNotFound = 127;   // no such program or library

int run(int count, char** arguments);
int options(int count, char** arguments);
int doctor(int count, char** arguments);
int merge(int count, char** arguments);

}  // namespace cupool::tools
