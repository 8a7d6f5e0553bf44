// What a trace of cupool's says that its program did, as steps that can be replayed.
#pragma once

#include <cstdio>
#include <string>

#include "replay/program.hpp"

namespace cupool::tools {

// `with_names`: call stacks, too, as text. False: `error` says why, as a sentence about the file without its
// name.
bool read_recording(std::FILE* file, bool with_names, replay::Program* out, std::string* error);

}  // namespace cupool::tools
