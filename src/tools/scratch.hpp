// A temporary directory for the reports of a program and its children, and the signal handling while the
// program runs. Removed with the object, also when the command is interrupted: a deadly signal is passed on
// to the program, which is waited for, and takes effect here only after the answer is printed and the
// directory removed.
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

  // In the fork child: restores the signal handlers that the command was started with.
  static void become_child();
  // Waits for the child, which gets the signals meant for us; its status as waitpid gives it, -1 on failure.
  static int wait_for(pid_t child);
  // Whether a deadly signal has come.
  static bool is_interrupted();

 private:
  char path_[32] = "/tmp/cupool-doctor-XXXXXX";
  bool made_ = false;
};

}  // namespace cupool::tools
