// When a report is written: at the end of the process, whichever way it ends, and when a signal asks for one.
// Nothing here runs before the program's first use of CUDA. A forked child writes nothing: what it inherited
// is not its own.
#pragma once

#include "report/facts.hpp"

namespace cupool::report {

// The program has begun to use CUDA: remembers who it is, and sees to it that SIGTERM, SIGINT and SIGHUP,
// which would end the process without a word, report first; where the user asked for a full report, abort
// does so too. Signals that the program handles or ignores stay its own.
void begin(const Probe& probe);

// The process ends. Writes once, however often it is called.
enum class Ending { kOrderly, kAbrupt };  // kAbrupt: other threads may be anywhere, with any lock
void finish(Ending ending);

// Now, in full. Safe in a signal handler.
void dump();

// The JSON into memory, with a terminating zero if `room` is not 0; how long it is without it, cut or not.
size_t print_json(char* text, size_t room);

}  // namespace cupool::report
