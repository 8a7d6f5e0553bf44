// The lines that tell people a call stack. Names come from symbols.hpp; not for a signal handler.
#pragma once

#include <string_view>

namespace cupool {

// One line on stderr for one frame: function, file and line where the object's symbols allow, else the
// command that finds them. It begins with `who`, the process that speaks. True: the frame is main; those
// above it are the same in every program.
bool print_frame(std::string_view who, unsigned number, void* return_address);

}  // namespace cupool
