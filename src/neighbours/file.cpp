// See file.hpp.
#include "neighbours/file.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "config/process.hpp"
#include "neighbours/identity.hpp"
#include "neighbours/layout.hpp"
#include "neighbours/name.hpp"

namespace cupool::neighbours {
namespace {

// O_NONBLOCK: open() must not block on a pipe in its place.
constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
constexpr mode_t kMode = 0600;

// A file that a mask of 0777 left to nobody. The descriptor stands for the file itself, whatever its name is
// by now.
bool give_to_owner(const char* path, uint32_t user) {
  const int file = ::open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return false;
  struct stat about;
  char self[48];
  // Of the thread: its table of descriptors is not the process's.
  format_into(self, "/proc/thread-self/fd/{}", file);
  const bool given = fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == user &&
                     about.st_nlink == 1 && (about.st_mode & 077) == 0 && chmod(self, kMode) == 0;
  close(file);
  return given;
}

// Another user's file. What that user has mounted over it is not touched: whoever serves a mount decides how
// long an open() takes.
int open_within(const char* directory, const char* path) {
  const int folder = ::open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return -1;
  open_how how = {};
  how.flags = kFlags;
  how.resolve = RESOLVE_NO_XDEV;
  auto file = static_cast<int>(syscall(SYS_openat2, folder, strrchr(path, '/') + 1, &how, sizeof how));
  if (file < 0 && errno == ENOSYS) file = ::open(path, kFlags);
  const int error = errno;
  close(folder);
  errno = error;
  return file;
}

bool write_at(int file, const void* from, size_t size, uint64_t at) {
  return pwrite(file, from, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
}

// A lock of the open file, not of the process: closing the file elsewhere must not release it.
bool set_lock(int file, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool is_blank(const Header& header) { return header.magic[0] == '\0' && header.layout == 0; }

// A new file, or one that was truncated. Several processes may be here at once: they write the same.
bool prepare(int file) {
  Header header = {};
  memcpy(header.magic, kMagic, sizeof kMagic);
  header.layout = kLayout;
  return ftruncate(file, static_cast<off_t>(kFileBytes)) == 0 && write_at(file, &header, kBellAt, 0);
}

}  // namespace

int RegistryFile::refuse(int file, const char* why) {
  refusal_ = why;
  if (file >= 0) close(file);
  return -1;
}

uint32_t RegistryFile::owner() const { return user_ == kOwn ? geteuid() : user_; }

int RegistryFile::open_named(bool create) {
  const uint32_t user = owner();
  if (named_ != user) name_ = user_ == kOwn ? outer_user(user) : user;
  named_ = user;
  char name[32];
  write_name(name_, name, sizeof name);
  char path[PATH_MAX];
  errno = ENAMETOOLONG;
  if (format_into(path, "{}/{}", trusted(directory_), trusted(name)) + 1 >= sizeof path) return -1;
  if (user_ != kOwn) return open_within(directory_, path);
  const int flags = create ? kFlags | O_CREAT : kFlags;
  const int file = ::open(path, flags, kMode);
  if (file >= 0 || errno != EACCES || !create || !give_to_owner(path, user)) return file;
  return ::open(path, flags, kMode);
}

int RegistryFile::open_checked(bool create) {
  if (config::has_raised_rights()) return refuse(-1, "the program has raised rights");
  const int file = open_named(create);
  if (file < 0 && errno == ENAMETOOLONG) return refuse(-1, "the name is too long");
  if (file < 0) return refuse(-1, errno == ENOENT ? "there is none" : "it cannot be opened");
  const uint32_t user = owner();
  struct stat about;
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return refuse(file, "it is not a file");
  if (about.st_uid != user) return refuse(file, "it belongs to another user");
  if ((about.st_mode & 077) != 0) return refuse(file, "others have access to it");
  if (about.st_nlink > 1) return refuse(file, "it has a second name");
  // The umask may have taken rights from the file that was just made, even its owner's.
  if (create && (about.st_mode & kMode) != kMode) fchmod(file, kMode);
  if (about.st_size == 0 && create && !prepare(file)) return refuse(file, "it cannot be written");
  if (about.st_size != 0 && about.st_size != static_cast<off_t>(kFileBytes))
    return refuse(file, "it has another size");
  return file;
}

bool RegistryFile::connect(bool create) {
  const CancelShield shield;
  NoSignals quiet;
  const int file = open_checked(create);
  if (file < 0) {
    quiet.failed();
    disconnect();
    return false;
  }
  Header header = {};
  bool good = pread(file, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
  // Its maker found no room in the file system for the first page.
  if (good && create && is_blank(header)) {
    good = prepare(file) && pread(file, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
    if (!good) {
      quiet.failed();
      disconnect();
      refuse(file, "it cannot be written");
      return false;
    }
  }
  good = good && memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.layout == kLayout;
  if (!good) {
    disconnect();
    refuse(file, "its contents are damaged");
    return false;
  }
  struct stat about;
  good = fstat(file, &about) == 0 && map(file, about.st_dev, about.st_ino);
  close(file);
  if (!good) refusal_ = "it cannot be mapped";
  return good;
}

bool RegistryFile::map(int file, uint64_t device, uint64_t inode) {
  uint32_t* const old = bell_.load(std::memory_order_relaxed);
  if (is_connected() && device == device_ && inode == inode_.load(std::memory_order_relaxed)) return true;
  void* const place = old == nullptr ? nullptr : reinterpret_cast<char*>(old) - kBellAt;
  // Mapped in place, because a sleeping thread must never name an address that is not ours.
  void* const page =
      mmap(place, kPageBytes, PROT_READ, MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED), file, 0);
  if (page == MAP_FAILED) {
    disconnect();
    return false;
  }
  device_ = device;
  bell_.store(reinterpret_cast<uint32_t*>(static_cast<char*>(page) + kBellAt), std::memory_order_release);
  inode_.store(inode, std::memory_order_release);
  return true;
}

int RegistryFile::sleep(uint32_t seen, uint64_t ns) const {
  const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  uint32_t* const bell = bell_.load(std::memory_order_acquire);
  if (bell == nullptr) return EFAULT;
  return syscall(SYS_futex, bell, FUTEX_WAIT, seen, &time, nullptr, 0) == 0 ? 0 : errno;
}

void RegistryFile::wake_all() const {
  uint32_t* const bell = bell_.load(std::memory_order_acquire);
  if (bell != nullptr) syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

OpenFile::OpenFile(RegistryFile& file) : number_(-1) {
  if (!file.is_connected()) return;
  number_ = file.open_checked(false);
  struct stat about;
  if (number_ < 0 || fstat(number_, &about) != 0) {
    file.disconnect();
  } else if (about.st_size == 0 || about.st_dev != file.device_ ||
             about.st_ino != file.inode_.load(std::memory_order_relaxed)) {
    number_ = file.refuse(number_, "it was replaced");
    file.disconnect();
  }
}

OpenFile::~OpenFile() {
  if (number_ < 0) return;
  // A child that was forked meanwhile has the file open too, and would keep the lock.
  if (locked_) set_lock(number_, F_UNLCK);
  close(number_);
}

bool OpenFile::read(uint64_t at, void* out, size_t size) const {
  return pread(number_, out, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
}

bool OpenFile::write(uint64_t at, const void* from, size_t size) const {
  if (write_at(number_, from, size, at)) return true;
  quiet_.failed();
  return false;
}

bool OpenFile::try_exclusive() const {
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    locked_ = set_lock(number_, F_WRLCK);
    if (locked_) return true;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return false;
    sched_yield();
  }
  return false;
}

}  // namespace cupool::neighbours
