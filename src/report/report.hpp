// When a report is written: at the end of the process, whichever way it ends, and when a signal requests one.
// Nothing here runs before the program's first use of CUDA. A fork child writes nothing: the counters it
// inherited are its parent's.
#pragma once

#include <cstddef>

#include "neighbours/registry.hpp"
#include "report/facts.hpp"

namespace cupool::report {

// First use of CUDA: records the identity of the process and installs handlers, so that SIGTERM, SIGINT and
// SIGHUP report before they end it; where the user asked for a full report, abort does too. Signals that the
// program handles or ignores are left alone.
void begin(const Probe& probe);

// The process ends. Writes once, however often it is called.
enum class Ending { kOrderly, kAbrupt };  // kAbrupt: other threads may be anywhere, with any lock
void finish(Ending ending);

// Whether one of the reports will be text.
bool writes_text();

// Writes a full report now. Safe in a signal handler.
void dump();

// Writes what a trace has kept in memory (CUPOOL_TRACE_KEEP) to its file. Safe in a signal handler.
void dump_trace();

// Writes these figures to CUPOOL_METRICS_FILE, if there is one. The report at exit does so too. Not in a
// signal handler. Calls no driver: the thread may have another table of descriptors than the program.
void write_metrics_now(const neighbours::Figures* figures, size_t count);

// Writes the JSON into memory, with a terminating zero if `room` is not 0; returns its full length without
// the zero, even if truncated.
size_t print_json(char* text, size_t room);

}  // namespace cupool::report
