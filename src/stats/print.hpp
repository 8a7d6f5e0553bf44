// The counters as text for people and as JSON for programs, into any sink that takes pieces of text.
#pragma once

#include "stats/counters.hpp"

namespace cupool::stats {

using Sink = void (*)(void* target, const char* text, unsigned long size);

// One "name value" line per counter that is not zero.
void print_text(const Sums& sums, Sink sink, void* target);

// One JSON object whose keys are the counters' names.
void print_json(const Sums& sums, Sink sink, void* target);

}  // namespace cupool::stats
