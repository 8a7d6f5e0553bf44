// The hooked functions as rows that the doors look up: by name for dlsym, by the driver's pointer for
// cuGetProcAddress. Constant data but for the pointer index, which is filled once when the driver is known;
// read without a lock.
#pragma once

#include <string_view>

namespace cupool::hooks {

struct Row {
  // Functions that return addresses, because a table of the addresses could not be constant data in C++.
  using Address = void* (*)();

  const char* name;
  Address hook;       // what the doors hand out
  Address exported;   // what the dynamic linker finds under the name in this library
  Address real;       // the driver's function. pre: the driver was found
  bool must_be_seen;  // the rules of order/ rely on the hook; an unknown newer version would escape it
};

// Null when the name is not a hooked one.
const Row* find_by_name(std::string_view name);

// The row whose real function this is, or null. pre: the driver was found.
const Row* find_by_pointer(const void* function);

// Whether we can vouch for what the driver answered to a name (without version or per-thread suffix) that is
// not hooked: it is listed in api.def or known.def, in the very version that was handed out. pre: the driver
// was found.
bool is_known(std::string_view name, const void* function);
// The same for an exported symbol, whose name includes version and per-thread suffix.
bool is_known_symbol(std::string_view symbol);

}  // namespace cupool::hooks
