// See socket_file.hpp.
#include "share/socket_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/descriptors.hpp"
#include "base/format.hpp"
#include "config/options.hpp"

namespace cupool::share {
namespace {

constexpr mode_t kMode = 0600;
constexpr char kPrefix[] = "cupool-";

bool is_socket_of(const struct stat& file, uint32_t user) {
  return S_ISSOCK(file.st_mode) && file.st_uid == user;
}

bool is_young(const struct stat& file) {
  constexpr time_t kYoungSeconds = 60;
  return time(nullptr) - file.st_mtime < kYoungSeconds;
}

bool is_refused(const SocketFile& file) {
  const int knock = move_up(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (knock < 0) return false;
  const bool refused = !file.connect(knock) && errno == ECONNREFUSED;
  close(knock);
  return refused;
}

}  // namespace

SocketFile::SocketFile(const char* name) {
  address_.sun_family = AF_UNIX;
  const size_t size =
      format_into(address_.sun_path, "{}/{}", trusted(config::options().neighbours_dir), trusted(name));
  if (size + 1 < sizeof address_.sun_path)
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size + 1);
}

SocketFile SocketFile::of(uint32_t pid, uint64_t instance) {
  char name[48];
  format_into(name, "{}{}-{:016x}", trusted(kPrefix), pid, instance);
  return SocketFile(name);
}

bool SocketFile::bind(int socket) const {
  if (length_ == 0) {
    errno = ENAMETOOLONG;
    return false;
  }
  remove();
  // The file gets the socket's mode, so it never has another one.
  fchmod(socket, kMode);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address_), length_) != 0) return false;
  // The umask may have taken its owner's rights away.
  struct stat about;
  if (lstat(address_.sun_path, &about) != 0) return false;
  return (about.st_mode & 0777) == kMode || chmod(address_.sun_path, kMode) == 0;
}

bool SocketFile::connect(int socket) const {
  errno = ENAMETOOLONG;
  return length_ != 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address_), length_) == 0;
}

bool SocketFile::is_of(uint32_t user) const {
  struct stat about;
  return length_ != 0 && lstat(address_.sun_path, &about) == 0 && is_socket_of(about, user);
}

void SocketFile::remove() const {
  if (is_of(geteuid())) unlink(address_.sun_path);
}

void remove_abandoned() {
  constexpr int kMostNames = 1000;  // other users may fill the directory
  const int number = move_up(open(config::options().neighbours_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const folder = number < 0 ? nullptr : fdopendir(number);
  if (folder == nullptr) {
    if (number >= 0) close(number);
    return;
  }
  for (int i = 0; i < kMostNames; ++i) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has this folder
    const dirent* const one = readdir(folder);
    if (one == nullptr) break;
    struct stat about;
    if (strncmp(one->d_name, kPrefix, sizeof kPrefix - 1) != 0 ||
        fstatat(number, one->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !is_socket_of(about, geteuid()))
      continue;
    // The process of a young one may not have come to listen() yet.
    if (!is_young(about) && is_refused(SocketFile(one->d_name))) unlinkat(number, one->d_name, 0);
  }
  closedir(folder);
}

}  // namespace cupool::share
