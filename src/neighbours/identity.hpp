// Which process wrote an entry, and whether it still lives. A pid alone says little: it is reused, it means
// something else in another pid namespace, and exec keeps it. Reads /proc; what it saw is kept only as long
// as the entries are gone through.
#pragma once

#include <cstddef>
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

// For one pass over the entries of a registry. Its owner can write a thousand of them, and they must not cost
// a thousand looks at /proc: a process is mostly looked at once, and a registry that names strangers again
// and again is not believed any more.
class Processes {
 public:
  // `user`: whose they are.
  Processes(const Identity& self, uint32_t user) : self_(self), user_(user) {}
  // A process that is another user's is gone, too: whoever wrote the entry was not it.
  Life life_of(const Identity& other);

 private:
  struct Seen {
    int64_t pid;  // 0: none
    uint64_t start;
    uint64_t stack;
    bool lives;
  };
  static constexpr size_t kMostSeen = 32;  // few: threads of the program may have small stacks
  static constexpr int kMostStrangers = 256;
  const Seen& look_at(int64_t pid);
  const Identity& self_;
  uint32_t user_;
  int strangers_ = 0;
  Seen seen_[kMostSeen] = {};
};

// A user of this user namespace, as the namespace above numbers it. A container's root is an ordinary user
// there, and must not take the name that belongs to root.
uint32_t outer_user(uint32_t user);

}  // namespace cupool::neighbours
