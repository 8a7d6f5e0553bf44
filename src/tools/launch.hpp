// Starting a program with the pool in front: where the library is, and the environment it needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cupool::tools {

// The library beside the command (a build tree), or in a library folder next to the command's (an
// installation); empty when it is nowhere.
std::string find_library();

// Puts the library in front of LD_PRELOAD for programs started from now on. False: it was not found, and that
// was said.
bool preload_library();

// The full name of an option that was written with or without CUPOOL_, in any case, with - or _.
std::string option_name(std::string_view word);

// Where a shell would find a program, and whether it may be run; not found: errno says why.
struct Program {
  bool found = false;
  int error = 0;
};
Program find_program(const char* name);

// "name=value" with the name of an option, as option_name() takes it, into the environment.
// False: there is no such option, or the value does not suit it, and that was said.
bool set_option(const char* assignment);

// Says that a program cannot be run, and gives the exit code for it.
int cannot_run(const char* name, int error);

// Becomes the program that the first word names. Returns only where that failed: the exit code, after saying
// why.
int become(std::vector<std::string> words);

}  // namespace cupool::tools
