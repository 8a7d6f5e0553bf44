// From an environment to Options: bad values, unknown names and contradictions each become one sentence, and
// the program runs on. Free of global state, so that tests and a fuzzer feed it any environment they like.
#pragma once

#include <string_view>

#include "config/options.hpp"

namespace cupool::config {

// Called with one whole sentence per fault.
using Complain = void (*)(const char* sentence);

// Reads every CUPOOL_* entry of a null-terminated environment over the defaults. A value that does not parse
// or lies outside its range leaves the default. CUPOOL_SIM_* belongs to the simulated driver and is skipped.
Options read_environment(const char* const* environment, Complain complain);

// The Levenshtein distance of two names, looking at no more letters than an option's name can have.
unsigned distance(std::string_view a, std::string_view b);

// The option whose name is nearest to `name`, or null when none is near.
const char* nearest_name(std::string_view name);

// Whether `program` fits one of the comma-separated patterns (with * and ?).
bool matches_any(std::string_view patterns, std::string_view program);

}  // namespace cupool::config
