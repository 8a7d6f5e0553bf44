// For tests of the neighbours' registry: a directory of its own, and what goes in and out of it.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "neighbours/layout.hpp"
#include "neighbours/name.hpp"
#include "neighbours/registry.hpp"

namespace cupool::neighbours {

class Place {
 public:
  Place() {
    char name[] = "/tmp/cupool-registry-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~Place() { std::filesystem::remove_all(directory_); }
  const char* directory() const { return directory_.c_str(); }
  std::string file() const {
    return directory_ + "/cupool-" + std::to_string(geteuid()) + "-" + std::to_string(kLayout);
  }
  void damage(uint64_t at, const void* bytes, size_t size) const {
    const int file = open(this->file().c_str(), O_WRONLY);
    REQUIRE(pwrite(file, bytes, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size));
    close(file);
  }

 private:
  std::string directory_;
};

inline constexpr DeviceId kFirst = {{1, 2, 3}};
inline constexpr DeviceId kSecond = {{9, 8, 7}};
inline constexpr uint64_t kLong = 10'000'000'000;

inline Figures figures(uint64_t cached, const DeviceId& device = kFirst, int ordinal = 0) {
  return {device, ordinal, 10, cached, 10 + cached, 99, 7, 3, 5, 4, 1000, 500};
}

inline std::vector<Entry> entries(Registry& registry) {
  std::vector<Entry> out;
  registry.for_each([&](const Entry& entry) { out.push_back(entry); });
  return out;
}

// Lets one process wait for another. For use in a child too: a failure there ends the process.
class Signal {
 public:
  Signal() { REQUIRE(pipe(ends_) == 0); }
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void send() const {
    if (write(ends_[1], "x", 1) != 1) _exit(1);
  }
  void wait() const {
    char word;
    if (read(ends_[0], &word, 1) != 1) _exit(1);
  }

 private:
  int ends_[2];
};

inline int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace cupool::neighbours
