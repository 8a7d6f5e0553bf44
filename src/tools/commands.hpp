// The verbs of the `cupool` command. Each gets the arguments after its name and returns the exit code.
#pragma once

#include <string>

#include "tools/arguments.hpp"

namespace cupool::tools {

inline constexpr int kMisuse = 2;       // the command line is invalid
inline constexpr int kCannotRun = 126;  // found, but not executable
inline constexpr int kNotFound = 127;   // no such program or library

// Says why the answer did not arrive on stdout, by an errno, and returns the exit code.
int cannot_write(int error);

int run(const Arguments& arguments);
int options(const Arguments& arguments);
int doctor(const Arguments& arguments);
int compare(const Arguments& arguments);
int merge(const Arguments& arguments);
int top(const Arguments& arguments);
int trim(const Arguments& arguments);
int trace(const Arguments& arguments);
int diff(const Arguments& arguments);
int waits(const Arguments& arguments);
int report(const Arguments& arguments);
// Makes the page of a trace; the exit code, after an error message if it is not 0.
int write_report(const std::string& trace, const std::string& page);
int replay(const Arguments& arguments);
int tune(const Arguments& arguments);
int fit(const Arguments& arguments);

}  // namespace cupool::tools
