// An event of a trace as a line of text, for `cupool trace --dump`.
#pragma once

#include <cstdint>
#include <string>

#include "tools/trace_reader.hpp"

namespace cupool::tools {

// One line of text, without its end, behind what is in `out`. `begin`: the time from which times are counted.
void print_event(const TraceAbout& about, const Happened& happened, uint64_t begin, std::string* out);

}  // namespace cupool::tools
