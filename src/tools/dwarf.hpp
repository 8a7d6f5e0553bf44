// elfutils' libdw, opened at run time: the few functions of it that look up lines, declared here as far as
// they are used, so that neither its headers nor the library are needed where nobody asks for lines.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace cupool::tools::dwarf {

// An entry of the debug information. libdw fills it and knows what is in it; it has 32 bytes.
struct Entry {
  void* opaque[4];
};
struct Attribute {
  void* opaque[4];
};

inline constexpr int kRead = 0;  // DWARF_C_READ
inline constexpr int kInlined = 0x1d;
inline constexpr int kFunction = 0x2e;
inline constexpr unsigned kLinkageName = 0x6e;
inline constexpr unsigned kOldLinkageName = 0x2007;
inline constexpr unsigned kCallFile = 0x58;
inline constexpr unsigned kCallLine = 0x59;

struct Library {
  void* (*begin)(int descriptor, int command);
  int (*end)(void* dwarf);
  int (*next_unit)(void* dwarf, uint64_t offset, uint64_t* next, size_t* header, uint64_t* abbreviations,
                   uint8_t* address_size, uint8_t* offset_size);
  Entry* (*entry_at)(void* dwarf, uint64_t offset, Entry* out);
  ptrdiff_t (*ranges)(Entry* entry, ptrdiff_t offset, uint64_t* base, uint64_t* begin, uint64_t* end);
  int (*scopes)(Entry* unit, uint64_t address, Entry** out);
  int (*parents)(Entry* entry, Entry** out);
  int (*tag)(Entry* entry);
  const char* (*name)(Entry* entry);
  Attribute* (*attribute)(Entry* entry, unsigned name, Attribute* out);  // those of its origin, too
  Attribute* (*own_attribute)(Entry* entry, unsigned name, Attribute* out);
  const char* (*text)(Attribute* attribute);
  int (*number)(Attribute* attribute, uint64_t* out);
  void* (*line_at)(Entry* unit, uint64_t address);
  int (*line_number)(void* line, int* out);
  const char* (*line_file)(void* line, uint64_t* changed, uint64_t* bytes);
  int (*files)(Entry* unit, void** out, size_t* count);
  const char* (*file_name)(void* files, size_t index, uint64_t* changed, uint64_t* bytes);
};

// Null: the system does not have it.
const Library* library();

}  // namespace cupool::tools::dwarf
