// See scratch.hpp.
#include "tools/scratch.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace cupool::tools {
namespace {

constexpr std::array kEndings = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
std::array<struct sigaction, kEndings.size()> before;
std::atomic<int> received{0};
std::atomic<pid_t> program{0};

void pass_on(int number) {
  const int saved_errno = errno;
  received.store(number);
  if (const pid_t child = program.load(); child > 0) kill(child, number);
  errno = saved_errno;
}

}  // namespace

Scratch::Scratch() {
  for (size_t i = 0; i < kEndings.size(); ++i) {
    struct sigaction ours = {};
    ours.sa_handler = pass_on;
    sigaction(kEndings[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kEndings[i], &ours, nullptr);
  }
  made_ = mkdtemp(path_) != nullptr;
}

Scratch::~Scratch() {
  for (const std::string& name : names()) unlink((path() + "/" + name).c_str());
  if (made_) rmdir(path_);
  become_child();
  if (const int number = received.load(); number != 0) {
    fflush(stdout);
    raise(number);
  }
}

std::vector<std::string> Scratch::names() const {
  std::vector<std::string> out;
  DIR* const folder = made_ ? opendir(path_) : nullptr;
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") out.push_back(name);
  }
  closedir(folder);
  return out;
}

void Scratch::become_child() {
  for (size_t i = 0; i < kEndings.size(); ++i) sigaction(kEndings[i], &before[i], nullptr);
}

bool Scratch::is_interrupted() { return received.load() != 0; }

int Scratch::wait_for(pid_t child) {
  program.store(child);
  // A signal may have arrived before the program's pid was stored.
  if (const int number = received.load(); number != 0) kill(child, number);
  int status = 0;
  pid_t done = 0;
  do done = waitpid(child, &status, 0);
  while (done < 0 && errno == EINTR);
  program.store(0);
  return done < 0 ? -1 : status;
}

}  // namespace cupool::tools
