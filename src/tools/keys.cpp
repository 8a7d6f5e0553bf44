// See keys.hpp. The signals are blocked and come through a descriptor, so that no handler runs beside the
// rest; one that the caller ignores never arrives.
#include "tools/keys.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <initializer_list>

namespace cupool::tools {
namespace {

// Setting the mode of a terminal that another job has in front stops the process.
bool is_in_front() {
  const pid_t front = tcgetpgrp(STDIN_FILENO);
  return front < 0 || front == getpgrp();
}

}  // namespace

Keys::Keys() {
  sigemptyset(&signals_);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) sigaddset(&signals_, one);
  sigprocmask(SIG_BLOCK, &signals_, nullptr);
  signals_at_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  take_terminal();
}

Keys::~Keys() {
  give_terminal();
  if (signals_at_ >= 0) close(signals_at_);
  sigprocmask(SIG_UNBLOCK, &signals_, nullptr);
}

void Keys::take_terminal() {
  if (is_taken_ || !is_in_front() || tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios plain = before_;
  plain.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  plain.c_cc[VMIN] = 1;
  plain.c_cc[VTIME] = 0;
  is_taken_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &plain) == 0;
}

void Keys::give_terminal() {
  if (is_taken_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  is_taken_ = false;
}

// Comes back only if the signal stopped the process and another one lets it go on.
void Keys::let_through(int signal) {
  give_terminal();
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  sigprocmask(SIG_BLOCK, &one, nullptr);
  take_terminal();
}

char Keys::wait(int ms) {
  take_terminal();
  pollfd both[] = {{signals_at_, POLLIN, 0}, {is_taken_ ? STDIN_FILENO : -1, POLLIN, 0}};
  if (poll(both, 2, ms) <= 0) return kNone;
  if (both[0].revents != 0) {
    signalfd_siginfo about;
    if (read(signals_at_, &about, sizeof about) == sizeof about)
      let_through(static_cast<int>(about.ssi_signo));
    return kNone;
  }
  char key = kNone;
  return read(STDIN_FILENO, &key, 1) == 1 ? key : kClosed;
}

}  // namespace cupool::tools
