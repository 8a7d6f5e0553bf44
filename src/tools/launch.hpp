// Starts a program under the pool: finds the library and sets up the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cupool::tools {

// The library beside the command (a build tree), or in a library folder next to the command's (an
// installation); empty when it is nowhere.
std::string find_library();

// Puts the library in front of LD_PRELOAD for programs started from now on. False: not found, after an error
// message.
bool preload_library();

// The full name of an option that was written with or without CUPOOL_, in any case, with - or _.
std::string option_name(std::string_view word);

// Where a shell would find a program, and whether it may be run; if not found, errno says why.
struct Program {
  bool found = false;
  int error = 0;
};
Program find_program(const char* name);

// The same as it would stand in the environment; empty if it is none or invalid, after an error message.
std::string option_entry(const char* assignment);
// Puts "name=value" into the environment; the name is an option's, as option_name() takes it. False: no such
// option, or an invalid value, after an error message.
bool set_option(const char* assignment);

// Reports that a program cannot be run, and returns the exit code for it.
int cannot_run(const char* name, int error);

// Executes the program that the first word names. Returns only on failure: the exit code, after an error
// message.
int become(std::vector<std::string> words);

}  // namespace cupool::tools
