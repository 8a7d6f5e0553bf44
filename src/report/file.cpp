// See file.hpp. Only system calls that are safe in a signal handler.
#include "report/file.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cupool::report {
namespace {

// A device or a pipe takes the report as it comes; there is nothing to rename.
int write_through(const char* path, char* buffer, size_t room, Write write, const void* argument) {
  const int file = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_APPEND);
  if (file < 0) return errno;
  Writer out(file, buffer, room);
  write(out, argument);
  out.flush();
  close(file);
  return out.error();
}

class Text {
 public:
  Text(char* out, size_t room) : out_(out), left_(room) {}
  void add(const char* text) {
    while (*text != '\0') add(*text++);
  }
  void add(char c) {
    if (left_ <= 1) return;
    *out_++ = c;
    *out_ = '\0';
    --left_;
  }

 private:
  char* out_;
  size_t left_;
};

}  // namespace

void expand(const char* pattern, const Facts& facts, char* out, size_t room) {
  *out = '\0';
  Text text(out, room);
  char number[16];
  for (const char* at = pattern; *at != '\0'; ++at) {
    if (*at != '%' || at[1] == '\0') {
      text.add(*at);
      continue;
    }
    switch (*++at) {
      case 'p':
        snprintf(number, sizeof number, "%d", facts.pid);
        text.add(number);
        break;
      case 'h':
        text.add(facts.host);
        break;
      case 'r':
        text.add(*facts.rank != '\0' ? facts.rank : "0");
        break;
      case 'e':
        text.add(facts.program);
        break;
      case '%':
        text.add('%');
        break;
      default:
        text.add('%');
        text.add(*at);
    }
  }
}

int write_file(const char* path, char* buffer, size_t room, Write write, const void* argument) {
  struct stat there;
  if (lstat(path, &there) == 0) {
    if (S_ISLNK(there.st_mode)) return ELOOP;
    if (S_ISDIR(there.st_mode)) return EISDIR;
    if (!S_ISREG(there.st_mode)) return write_through(path, buffer, room, write, argument);
  }
  char beside[PATH_MAX];
  const int size = snprintf(beside, sizeof beside, "%s.%d.part", path, getpid());
  if (size < 0 || static_cast<size_t>(size) >= sizeof beside) return ENAMETOOLONG;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int file = open(beside, flags, 0600);
  if (file < 0 && errno == EEXIST && unlink(beside) == 0) file = open(beside, flags, 0600);
  if (file < 0) return errno;
  Writer out(file, buffer, room);
  write(out, argument);
  out.flush();
  int error = out.error();
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename(beside, path) != 0) error = errno;
  if (error != 0) unlink(beside);
  return error;
}

}  // namespace cupool::report
