// A trace of a process that runs: asks the process for one through the registry, waits until it is recorded,
// and takes the file that the process made (neighbours/trace_answer.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "tools/arguments.hpp"

namespace cupool::tools {

// `cupool trace PID`: the exit code.
int attach(const Arguments& arguments, int64_t pid);

// Where a process records a trace; empty: it records none to a file, or does not answer.
std::string find_trace_of(int64_t pid);

}  // namespace cupool::tools
