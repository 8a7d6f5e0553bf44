// See call_stack.hpp.
#include "base/call_stack.hpp"

#include <cstring>

#include "base/log.hpp"
#include "base/symbols.hpp"

namespace cupool {

bool print_frame(std::string_view who, unsigned number, void* return_address) {
  // The byte before the return address belongs to the call, even if the call was its function's last
  // instruction.
  const Symbol at = symbol_at(static_cast<char*>(return_address) - 1);
  if (at.line != 0) {
    log::line("{}:     #{} {} at {}:{}", who, number, *at.function != '\0' ? at.function : "?", at.file,
              at.line);
  } else if (*at.object == '\0') {
    log::line("{}:     #{} {}", who, number, return_address);
  } else {
    log::line("{}:     #{} {} in {}; for the line: addr2line -Cfe {} {:#x}", who, number,
              *at.function != '\0' ? at.function : "?", at.object, at.object, at.in_object);
  }
  return strcmp(at.function, "main") == 0;
}

}  // namespace cupool
