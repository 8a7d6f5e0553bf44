// Where a report goes: the name that CUPOOL_STATS_FILE stands for, and a file that is there whole or not at
// all. The file is made beside its final place with mode 0600, never through a link, and renamed when
// everything is in it.
#pragma once

#include <cstddef>

#include "report/facts.hpp"
#include "report/writer.hpp"

namespace cupool::report {

// %p process, %h host, %r rank (0 outside of a job), %e program, %% a percent sign. What does not fit is cut;
// any other letter behind a percent sign stays as it is.
void expand(const char* pattern, const Facts& facts, char* out, size_t room);

// Calls write(Writer&) for the file at `path`. On failure an errno, and the file there before is untouched.
using Write = void (*)(Writer& out, const void* argument);
int write_file(const char* path, char* buffer, size_t room, Write write, const void* argument);

}  // namespace cupool::report
