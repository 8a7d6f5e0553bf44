// See filters.hpp.
#include "base/filters.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace cupool {
namespace {

constinit std::atomic<bool> is_new_filter_known{false};

unsigned field(const char* text, const char* name) {
  const char* const found = strstr(text, name);
  return found == nullptr ? 0 : static_cast<unsigned>(atoi(found + strlen(name)));
}

}  // namespace

void note_new_filter() { is_new_filter_known.store(true, std::memory_order_release); }

bool knows_new_filter() { return is_new_filter_known.load(std::memory_order_acquire); }

bool has_filter() { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) > 0; }

void FilterWatch::begin() {
  status_ = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
  before_ = read_count();
}

void FilterWatch::arm() {
  if (status_ >= 0) lseek(status_, 0, SEEK_SET);
}

bool FilterWatch::has_new() { return read_count() > before_; }

// The kernel writes the text when it is read from its beginning, not when the file is opened.
unsigned FilterWatch::read_count() {
  if (status_ < 0) return has_filter() ? 1 : 0;
  char text[8192];
  const ssize_t size = read(status_, text, sizeof text - 1);
  if (size <= 0) return before_;
  text[size] = '\0';
  // The number since Linux 5.9.
  const unsigned mode = field(text, "\nSeccomp:");
  return std::max(mode == 0 ? 0U : 1U, field(text, "\nSeccomp_filters:"));
}

}  // namespace cupool
