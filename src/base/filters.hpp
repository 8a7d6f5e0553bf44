// Filters of system calls (seccomp): whether the program has put itself under one since a moment. The filter
// of a container, which was there before, does not count: what it forbids is known to be bearable. No lock.
#pragma once

namespace cupool {

// For a thread with own files (own_files.hpp) that sleeps. After a sleep it asks by a single read(2), which
// every filter allows; all else may be what a new one forbids. The file is opened once and kept: a program
// that shuts itself in by a filter has often changed its root or forbidden itself new descriptors before.
// Without /proc from the start it asks by prctl(2), and sees a first filter alone.
class FilterWatch {
 public:
  // Notes the filters that there are.
  void begin();
  // Before a sleep: makes ready what has_new() reads.
  void arm();
  bool has_new();

 private:
  // How many; 1 where the kernel tells no number.
  unsigned read_count();

  int status_ = -1;
  unsigned before_ = 0;
};

// Whether there is any.
bool has_filter();

// A FilterWatch has seen a new one. Asked without a system call.
void note_new_filter();
bool knows_new_filter();

}  // namespace cupool
