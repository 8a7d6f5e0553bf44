// A directory of our own for the reports of a program and its children, and the program run beside it. Gone
// with the object, also when the command is interrupted: what would end it is passed on to the program,
// waited for, and obeyed only when the directory is gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cupool::tools {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  bool made() const { return made_; }
  std::string path() const { return path_; }
  std::vector<std::string> names() const;

  // In the child of a fork: signals are as the caller of the command left them.
  static void become_child();
  // Waits for the child, which gets the signals meant for us; its status as waitpid gives it, -1 on failure.
  static int wait_for(pid_t child);

 private:
  char path_[32] = "/tmp/cupool-doctor-XXXXXX";
  bool made_ = false;
};

}  // namespace cupool::tools
