// Which process wrote an entry, and whether it still lives. A pid alone says little: it is reused, it means
// something else in another pid namespace, and exec keeps it. Reads /proc, keeps no state.
#pragma once

#include <cstdint>

namespace cupool::neighbours {

struct Identity {
  uint64_t token;  // random; one for each process that uses the registry
  int64_t pid;
  uint64_t start;          // clock ticks from boot to the start of the process; 0: not known
  uint64_t stack;          // where its stack begins, which exec changes; 0: not known
  uint64_t pid_namespace;  // 0: not known
  unsigned char boot[16];  // the kernel's boot id: /dev/shm may be a directory on a disk
};

Identity own_identity();

enum class Life { kLives, kGone, kUnknown };  // kUnknown: of another pid namespace
Life life_of(const Identity& other, const Identity& self);

}  // namespace cupool::neighbours
