// See identity.hpp.
#include "neighbours/identity.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/clock.hpp"
#include "base/format.hpp"

namespace cupool::neighbours {
namespace {

// The beginning of a file of /proc, terminated; false: it cannot be read.
bool read_text(const char* path, char* out, size_t room) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = read(file, out, room - 1);
  close(file);
  if (size <= 0) return false;
  out[size] = '\0';
  return true;
}

struct Status {
  char state;
  uint64_t threads;
  uint64_t start;
  uint64_t stack;
};

// Of /proc/<pid>/stat, whose second field is a name in brackets that may hold anything.
bool read_status(int64_t pid, Status* out) {
  constexpr int kState = 3;
  constexpr int kThreads = 20;
  constexpr int kStart = 22;
  constexpr int kStack = 28;
  char path[48];
  format_into(path, "/proc/{}/stat", pid);
  char text[1024];
  if (!read_text(path, text, sizeof text)) return false;
  const char* at = strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return false;
  *out = {};
  int field = kState;
  for (at += 2; *at != '\0' && field <= kStack; ++field) {
    if (field == kState) out->state = *at;
    if (field == kThreads) out->threads = strtoull(at, nullptr, 10);
    if (field == kStart) out->start = strtoull(at, nullptr, 10);
    if (field == kStack) out->stack = strtoull(at, nullptr, 10);
    at = strchr(at, ' ');
    if (at == nullptr) break;
    ++at;
  }
  // The kernel shows 1 or 0 to readers without permission.
  if (out->stack == 1) out->stack = 0;
  return field > kStart;
}

// Of /proc/<pid>/status: by any of its four numbers, since a program may change the effective one for a
// moment.
bool has_user(int64_t pid, uint32_t user) {
  char path[48];
  format_into(path, "/proc/{}/status", pid);
  char text[1024];
  if (!read_text(path, text, sizeof text)) return false;
  const char* at = strstr(text, "\nUid:");
  if (at == nullptr) return false;
  at += strlen("\nUid:");
  for (int i = 0; i < 4; ++i) {
    char* end = nullptr;
    if (strtoull(at, &end, 10) == user && end != at) return true;
    at = end;
  }
  return false;
}

enum class Whose { kNobodys, kUsers, kStrangers };
Whose whose(int64_t pid, uint32_t user) {
  char path[48];
  format_into(path, "/proc/{}", pid);
  struct stat about;
  if (stat(path, &about) != 0) return Whose::kNobodys;
  // The kernel shows processes that must not be dumped, or have changed their user, as root's.
  return about.st_uid == user || has_user(pid, user) ? Whose::kUsers : Whose::kStrangers;
}

void read_boot_id(unsigned char* out) {
  char text[64];
  if (!read_text("/proc/sys/kernel/random/boot_id", text, sizeof text)) return;
  size_t digits = 0;
  for (const char* at = text; *at != '\0' && digits < 32; ++at) {
    const int value = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
    if (value < 0) continue;
    out[digits / 2] = static_cast<unsigned char>(out[digits / 2] << 4 | value);
    ++digits;
  }
}

}  // namespace

Identity own_identity() {
  Identity self = {};
  if (syscall(SYS_getrandom, &self.token, sizeof self.token, 1) != static_cast<long>(sizeof self.token))
    self.token = now_ns() ^ static_cast<uint64_t>(getpid()) << 40;
  self.token |= 1;
  self.pid = getpid();
  Status status;
  // By the pid, so that a /proc of another pid namespace is noticed below.
  if (read_status(self.pid, &status)) {
    self.start = status.start;
    self.stack = status.stack;
  }
  struct stat about;
  if (stat("/proc/self/ns/pid", &about) == 0) self.pid_namespace = about.st_ino;
  read_boot_id(self.boot);
  return self;
}

const Processes::Seen& Processes::look_at(int64_t pid) {
  // By our random number, so that nobody can choose pids that displace each other.
  Seen& seen = seen_[(static_cast<uint64_t>(pid) * self_.token >> 32U) % kMostSeen];
  if (seen.pid == pid) return seen;
  seen = {pid, 0, 0, false};
  const Whose owner = whose(pid, user_);
  if (owner == Whose::kStrangers) ++strangers_;
  Status status;
  if (owner != Whose::kUsers || !read_status(pid, &status)) return seen;
  // The first thread of a process may be over while others run.
  const bool is_over = (status.state == 'Z' || status.state == 'X') && status.threads <= 1;
  seen = {pid, status.start, status.stack, !is_over};
  return seen;
}

Life Processes::life_of(const Identity& other) {
  if (other.token == self_.token) return Life::kLives;
  if (memcmp(other.boot, self_.boot, sizeof self_.boot) != 0) return Life::kGone;
  if (other.pid_namespace != self_.pid_namespace) return Life::kUnknown;
  if (other.pid <= 0 || other.pid > std::numeric_limits<pid_t>::max()) return Life::kGone;
  // Without /proc only the pid can be checked; another user's process refuses.
  if (self_.start == 0) return kill(static_cast<pid_t>(other.pid), 0) == 0 ? Life::kLives : Life::kGone;
  if (strangers_ >= kMostStrangers) return Life::kGone;
  const Seen& seen = look_at(other.pid);
  if (!seen.lives || (other.start != 0 && seen.start != other.start)) return Life::kGone;
  const bool replaced = other.stack != 0 && seen.stack != 0 && seen.stack != other.stack;
  return replaced ? Life::kGone : Life::kLives;
}

uint32_t outer_user(uint32_t user) {
  char text[4096];
  if (!read_text("/proc/self/uid_map", text, sizeof text)) return user;
  char* at = text;
  for (;;) {
    uint64_t line[3];  // first user here, first user above, how many
    for (uint64_t& number : line) {
      char* end = nullptr;
      number = strtoull(at, &end, 10);
      if (end == at) return user;
      at = end;
    }
    if (user >= line[0] && user - line[0] < line[2]) return static_cast<uint32_t>(line[1] + user - line[0]);
  }
}

}  // namespace cupool::neighbours
