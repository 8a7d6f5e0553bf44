// The symbol at a code address: function, file and line from debug information in the object itself, read
// with elfutils' libdw where the system has it (opened at the first look-up); else what the dynamic linker
// knows. For the debug aids: slow, allocates, must not run in a signal handler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cupool {

struct Symbol {
  char function[128] = "";  // empty: not known
  char file[192] = "";      // of the source; empty: not known
  int line = 0;
  char object[256] = "";       // the program or library; empty: not known
  uintptr_t in_object = 0;     // the address as addr2line wants it
  const void* base = nullptr;  // where the object was loaded
};

Symbol symbol_at(void* address);

}  // namespace cupool
