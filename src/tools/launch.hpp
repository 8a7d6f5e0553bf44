// Starting a program with the pool in front: where the library is, and the environment it needs.
#pragma once

#include <string>

namespace cupool::tools {

// The library beside the command (a build tree), or in a library folder next to the command's (an
// installation); empty when it is nowhere.
std::string find_library();

// Puts the library in front of LD_PRELOAD for programs started from now on. False: it was not found, and that
// was said.
bool preload_library();

// "name=value" with the name of an option, with or without CUPOOL_ and in any case, into the environment.
// False: there is no such option, or the value does not suit it, and that was said.
bool set_option(const char* assignment);

// Becomes the program. Returns only where that failed: the exit code, after saying why.
int become(char** arguments);

}  // namespace cupool::tools
