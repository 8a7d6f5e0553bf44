// A chunk as a descriptor that another process can import. It is the memory file of the chunk's arena, opened
// once more: the position of that open file says which part of it and what it is, and a read lock on the part
// lasts as long as any process has a copy, so that memory which another process holds is not used again.
// Under the state mutex.
#pragma once

#include "sim/mapped_memory.hpp"

namespace cupool::sim {

// A descriptor of its own; -1: the system has none left.
int export_chunk(const PhysicalMemory& memory);
// What a descriptor names, with a copy of it that the caller owns; false: no chunk at all.
bool import_chunk(int descriptor, PhysicalMemory& out);
// Whether a descriptor of this part of the file is open anywhere.
bool exported_elsewhere(int file, std::uint64_t offset, std::uint64_t bytes);

}  // namespace cupool::sim
