// Formatting without the C library's printf, which is not async-signal-safe, obeys the program's locale (a
// comma in "0.5" is not JSON) and needs kilobytes of stack. The usual conversions: d i u x X c s p f %, with
// width, precision (also '*'), the flags '-', '0' and '#', and every length. Text that comes in by %s is
// somebody else's: what could move a cursor or forge a line becomes a question mark. Allocates nothing, keeps
// no state.
#pragma once

#include <cstdarg>
#include <cstddef>

namespace cupool {

// As vsnprintf: always terminates if there is room, and returns the length of the whole text.
[[gnu::format(printf, 3, 0)]] size_t format_list(char* out, size_t room, const char* format, va_list args);
[[gnu::format(printf, 3, 4)]] size_t format(char* out, size_t room, const char* format, ...);

// Makes one harmless line of a text in place: control characters, invalid UTF-8, the C1 controls, line
// separators and direction overrides become question marks, byte by byte.
void flatten(char* text, size_t size);

}  // namespace cupool
