// See descriptors.hpp.
#include "base/descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cupool {

int move_up(int descriptor) {
  constexpr int kHighNumber = 500;
  if (descriptor < 0) return descriptor;
  const int high = fcntl(descriptor, F_DUPFD_CLOEXEC, kHighNumber);
  if (high < 0) {
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return descriptor;
  }
  ::close(descriptor);
  return high;
}

KeptDescriptor::KeptDescriptor(int number) {
  struct stat about;
  if (number < 0 || fstat(number, &about) != 0) return;
  number_ = number;
  device_ = about.st_dev;
  inode_ = about.st_ino;
}

bool KeptDescriptor::is_ours() const {
  struct stat about;
  return number_ >= 0 && fstat(number_, &about) == 0 && about.st_dev == device_ && about.st_ino == inode_;
}

void KeptDescriptor::close() {
  if (is_ours()) ::close(number_);
  number_ = -1;
}

}  // namespace cupool
