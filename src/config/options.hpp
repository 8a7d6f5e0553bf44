// All options, as one struct generated from options.def. Only this folder reads the environment; it does so
// once, at the program's first use of CUDA, never in a constructor. The result is immutable and never
// destroyed, so it is read without a lock from anywhere, at exit and in a fork child too.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace cupool::config {

using Text = const char*;

#define CUPOOL_VALUE(constant, word) constant,
#define CUPOOL_ENUM(type, ...) enum class type : uint8_t { __VA_ARGS__ };
#include "config/options.def"
#undef CUPOOL_VALUE

struct Options {
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc) type field{};
#include "config/options.def"
  bool stepped_aside = false;  // CUPOOL_ONLY or CUPOOL_EXCEPT keep cupool out of this program
};

// The options in force in this process. The first call reads the environment and reports every bad value
// once.
const Options& options();

// The defaults alone, without the environment.
Options defaults();

// Whether CUPOOL_HELP asks for the options; cheap, parses nothing else, and looks at the environment now.
bool help_requested();

}  // namespace cupool::config
