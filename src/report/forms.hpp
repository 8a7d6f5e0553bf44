// The three forms of a report. Each reads the counters itself, device by device, so that none needs to
// allocate.
#pragma once

#include "report/facts.hpp"
#include "report/writer.hpp"

namespace cupool::report {

// At most five lines for people; nothing at all from a process that allocated no memory, or in which cupool
// steps aside.
void write_summary(Writer& out, const Facts& facts, stats::Reading reading);
// Every nonzero counter, with its meaning.
void write_text(Writer& out, const Facts& facts, stats::Reading reading);
// One line, as specified by docs/stats.schema.json.
void write_json(Writer& out, const Facts& facts, stats::Reading reading);

}  // namespace cupool::report
