// See file.hpp. Only system calls that are safe in a signal handler.
#include "report/file.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "config/process.hpp"

namespace cupool::report {
namespace {

// strerror is not async-signal-safe, and strerrordesc_np is newer than glibc 2.28.
const char* reason(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "no permission";
    case EROFS:
      return "the file system is read-only";
    case ENOENT:
      return "there is no such directory";
    case ENOTDIR:
      return "a part of its path is not a directory";
    case EISDIR:
      return "it is a directory";
    case ELOOP:
      return "it is a symbolic link";
    case ENAMETOOLONG:
      return "the name is too long";
    case ENOSPC:
      return "no space is left on the device";
    case EDQUOT:
      return "the disk quota is used up";
    case EFBIG:
      return "the limit on the size of files is reached";
    case EMFILE:
    case ENFILE:
      return "too many files are open";
    case EAGAIN:
      return "nobody reads what is written there";
    case EIO:
      return "the device reports an error";
    default:
      return "the system refuses";
  }
}

class Text {
 public:
  Text(char* out, size_t room) : out_(out), left_(room) {}
  void add(const char* text) {
    while (*text != '\0') add(*text++);
  }
  // For untrusted text: it must not lead into another directory, nor contain terminal control characters.
  void add_name(const char* text) {
    for (; *text != '\0'; ++text) {
      const auto byte = static_cast<unsigned char>(*text);
      add(*text == '/' || byte < 0x20 || byte == 0x7F ? '_' : *text);
    }
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

// ---- The place.

int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

bool is_ours(const struct stat& file, const Written& last) {
  return last.inode.load(std::memory_order_relaxed) == file.st_ino &&
         last.device.load(std::memory_order_relaxed) == file.st_dev &&
         last.time.load(std::memory_order_relaxed) == nanoseconds(file.st_mtim);
}

// Written by another process while this one ran: keep both reports.
bool is_anothers(const struct stat& file, const Written& last) {
  return !is_ours(file, last) && nanoseconds(file.st_mtim) > config::started_at();
}

class Directory {
 public:
  // The directory of the file at `path`; name() is the last component.
  explicit Directory(const char* path) {
    const char* const slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    if (slash != nullptr) {
      const auto size = static_cast<size_t>(slash - path);
      memcpy(folder, path, size);
      folder[size] = '\0';
      if (size == 0) memcpy(folder, "/", 2);
    }
    name_ = slash == nullptr ? path : slash + 1;
    number_ = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  }
  ~Directory() {
    if (number_ >= 0) close(number_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  bool is_open() const { return number_ >= 0; }
  const char* name() const { return name_; }
  bool look(const char* name, struct stat* out) const {
    return fstatat(number_, name, out, AT_SYMLINK_NOFOLLOW) == 0;
  }
  int make(const char* name, mode_t mode) const {
    return openat(number_, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  }
  int open_device(const char* name) const {
    return openat(number_, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_APPEND);
  }
  void remove(const char* name) const { unlinkat(number_, name, 0); }
  // 0 or an errno; EINVAL: the file system does not support these flags.
  int move(const char* from, const char* to, unsigned flags) const {
    if (syscall(SYS_renameat2, number_, from, number_, to, flags) == 0) return 0;
    return errno == ENOSYS ? EINVAL : errno;
  }

 private:
  const char* name_;
  int number_;
};

// A device is written directly; there is no rename.
const char* write_through(const Directory& directory, char* buffer, size_t room, Write write,
                          const void* argument) {
  const int file = directory.open_device(directory.name());
  if (file < 0) return reason(errno);
  struct stat about;
  const bool same_kind = fstat(file, &about) == 0 && S_ISCHR(about.st_mode);
  Writer out(file, buffer, room);
  if (same_kind) {
    write(out, argument);
    out.flush();
  }
  close(file);
  if (!same_kind) return "it changed meanwhile";
  return out.error() == 0 ? nullptr : reason(out.error());
}

// Why a report must not replace this file; null: it may.
const char* refusal(const struct stat& there) {
  if (S_ISLNK(there.st_mode)) return reason(ELOOP);
  if (S_ISDIR(there.st_mode)) return reason(EISDIR);
  if (S_ISFIFO(there.st_mode)) return "it is a pipe";
  if (!S_ISREG(there.st_mode)) return "it is not a file";
  return there.st_uid != geteuid() ? "it belongs to another user" : nullptr;
}

// ---- Names.

// A unique temporary name. The pid would not do: several processes share it where there are several pid
// namespaces.
void name_part(const char* name, char* out, size_t room) {
  uint64_t token = 0;
  if (syscall(SYS_getrandom, &token, sizeof token, 1) != static_cast<long>(sizeof token)) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    token = static_cast<uint64_t>(nanoseconds(now)) ^ reinterpret_cast<uintptr_t>(out);
  }
  format_into({out, room}, "{}.{:016x}.part", name, token);
}

// "stats.json" with the pid inserted: "stats.17.json", then "stats.17-2.json".
void name_with_process(const char* name, unsigned turn, char* out, size_t room) {
  const char* const dot = strrchr(name, '.');
  const size_t stem = dot == nullptr || dot == name ? strlen(name) : static_cast<size_t>(dot - name);
  char again[16] = "";
  if (turn > 1) format_into(again, "-{}", turn);
  format_into({out, room}, "{}.{}{}{}", first(name, stem), getpid(), again, name + stem);
}

// Moves the finished part file to `name`. 0 or an errno; EEXIST: the name is taken by another process.
int give_name(const Directory& directory, const Written& last, const char* part, const char* name) {
  const int moved = directory.move(part, name, RENAME_NOREPLACE);
  if (moved != EEXIST && moved != EINVAL) return moved;
  struct stat there;
  if (directory.look(name, &there)) {
    if (refusal(there) != nullptr || is_anothers(there, last)) return EEXIST;
    // The file that is replaced must be the one that was examined: swap, then compare.
    const int swapped = directory.move(part, name, RENAME_EXCHANGE);
    if (swapped == 0) {
      struct stat taken;
      if (directory.look(part, &taken) && taken.st_ino == there.st_ino) {
        directory.remove(part);
        return 0;
      }
      directory.move(part, name, RENAME_EXCHANGE);
      return EEXIST;
    }
    if (swapped != EINVAL) return swapped;
  }
  return directory.move(part, name, 0);
}

int give_any_name(const Directory& directory, const Written& last, const char* part) {
  constexpr unsigned kMostTurns = 1000;
  int error = give_name(directory, last, part, directory.name());
  for (unsigned turn = 1; error == EEXIST && turn < kMostTurns; ++turn) {
    char name[NAME_MAX + 1];
    name_with_process(directory.name(), turn, name, sizeof name);
    error = give_name(directory, last, part, name);
  }
  return error;
}

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
        format_into(number, "{}", facts.pid);
        text.add(number);
        break;
      case 'h':
        text.add_name(facts.host);
        break;
      case 'r':
        text.add_name(*facts.rank != '\0' ? facts.rank : "none");
        break;
      case 'e':
        text.add_name(facts.program);
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

const char* write_file(const char* path, Written& last, char* buffer, size_t room, Write write,
                       const void* argument) {
  if (strlen(path) >= PATH_MAX) return reason(ENAMETOOLONG);
  const Directory directory(path);
  if (!directory.is_open()) return reason(errno);
  struct stat there;
  if (directory.look(directory.name(), &there)) {
    if (S_ISCHR(there.st_mode)) return write_through(directory, buffer, room, write, argument);
    if (const char* const why = refusal(there)) return why;
  }
  char part[NAME_MAX + 1];
  if (strlen(directory.name()) + 32 > sizeof part) return reason(ENAMETOOLONG);
  name_part(directory.name(), part, sizeof part);
  const int file = directory.make(part, last.mode);
  if (file < 0) return reason(errno);
  Writer out(file, buffer, room);
  write(out, argument);
  out.flush();
  struct stat made = {};
  int error = fstat(file, &made) != 0 ? errno : out.error();
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0) error = give_any_name(directory, last, part);
  if (error != 0) {
    directory.remove(part);
    return reason(error);
  }
  last.device.store(made.st_dev, std::memory_order_relaxed);
  last.inode.store(made.st_ino, std::memory_order_relaxed);
  last.time.store(nanoseconds(made.st_mtim), std::memory_order_relaxed);
  return nullptr;
}

const char* make_file(const char* path, NewFile* made) {
  constexpr unsigned kMostTurns = 1000;
  if (strlen(path) >= PATH_MAX) return reason(ENAMETOOLONG);
  const Directory directory(path);
  if (!directory.is_open()) return reason(errno);
  static constinit const Written kNone{};
  char name[NAME_MAX + 1] = "";
  int file = -1;
  if (strlen(directory.name()) + 32 > sizeof name) return reason(ENAMETOOLONG);
  for (unsigned turn = 0; file < 0 && turn < kMostTurns; ++turn) {
    if (turn == 0) format_into(name, "{}", directory.name());
    if (turn != 0) name_with_process(directory.name(), turn, name, sizeof name);
    struct stat there;
    if (directory.look(name, &there)) {
      if (const char* const why = refusal(there)) return why;
      if (is_anothers(there, kNone)) continue;
      directory.remove(name);
    }
    file = directory.make(name, 0600);
    if (file < 0 && errno != EEXIST) return reason(errno);
  }
  struct stat about = {};
  const bool is_made = file >= 0 && fstat(file, &about) == 0;
  // The umask may have taken its owner's rights away, who opens it again.
  if (is_made && (about.st_mode & 0777) != 0600) fchmod(file, 0600);
  if (file >= 0) close(file);
  if (!is_made) return reason(errno);
  made->device = about.st_dev;
  made->inode = about.st_ino;
  char here[PATH_MAX] = "";
  if (path[0] != '/' && getcwd(here, sizeof here) == nullptr) return reason(errno);
  const auto folder = static_cast<size_t>(directory.name() - path);
  const size_t size =
      format_into(made->path, "{}{}{}{}", here, *here != '\0' ? "/" : "", first(path, folder), name);
  return size + 1 < sizeof made->path ? nullptr : reason(ENAMETOOLONG);
}

}  // namespace cupool::report
