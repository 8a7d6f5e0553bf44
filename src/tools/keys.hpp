// The keys that somebody presses while a list is shown: read at once, without Enter and without an echo. Owns
// the terminal's mode meanwhile, and gives it back however the command ends: a signal that stops or ends it
// is let through only when the terminal is as it was. Only for a command with one thread.
#pragma once

#include <signal.h>
#include <termios.h>

namespace cupool::tools {

class Keys {
 public:
  Keys();
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  static constexpr char kNone = '\0';
  static constexpr char kClosed = '\x04';  // the terminal is gone
  // The next key, or kNone when none came within `ms`.
  char wait(int ms);

 private:
  void take_terminal();
  void give_terminal();
  void let_through(int signal);

  termios before_{};
  bool is_taken_ = false;
  sigset_t signals_{};
  int signals_at_ = -1;
};

}  // namespace cupool::tools
