// A program played on a device, through the driver that is found here: by the process itself (`cupool replay
// --play`), and by processes that it starts for that under the library and without it (--gpu).
#pragma once

#include <string>

#include "tools/replays.hpp"

namespace cupool::tools {

// Plays it with the calls that a program would make, and prints one JSON object. Returns the exit code.
int play_here(const NamedProgram& one);

// Runs the command itself for it; with a setting under the library, without one alone. None: `error` says
// why.
std::optional<replay::Figures> play_on_device(const std::string& path, const Setting* setting,
                                              std::string* error);

}  // namespace cupool::tools
