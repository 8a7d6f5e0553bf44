// Loads what a program did from a file of any kind that is known: a trace of cupool's, a snapshot of
// PyTorch's, a log of RMM's, or lines of text; compressed by gzip, too.
#pragma once

#include <string>
#include <string_view>

#include "replay/program.hpp"

namespace cupool::tools {

// As read_recording().
bool load_program(const std::string& path, bool with_names, replay::Program* out, std::string* error);
// The same of the bytes of a file that is not compressed.
bool read_program(std::string_view bytes, bool with_names, replay::Program* out, std::string* error);

}  // namespace cupool::tools
