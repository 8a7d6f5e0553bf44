// The frames of the Python program that the calling thread runs: function, file and line, as places. Read
// from the interpreter's own structures, without its lock, and without calling it but for one question: which
// thread state is this thread's own (a look at a thread-local, for which nobody needs the lock). Those of
// another version than the known ones are left alone. A place is looked up once and then found by the
// addresses of its code; what is looked up is read through the kernel, so that nothing can go wrong by an
// address that is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cupool::trace {

// Looks for an interpreter in the process; may be called again and again until there is one. Asks the loader:
// not from the path of a call.
void look_for_python();

// Copies `native` to `out` with the frames of the interpreter's loop replaced by those that it runs. If the
// native ones end before the loop, all of Python's come behind them. Returns how many there are, at most
// `room`. `most`: places at most.
size_t merge_python(std::span<void* const> native, size_t most, uint64_t* out, size_t room);

}  // namespace cupool::trace
