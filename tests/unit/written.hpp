// For tests of what is logged: stderr as a string, and the log level put back. stderr is one for the whole
// process: no other thread may log meanwhile.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/log.hpp"

namespace cupool::test {

// What `body` writes to stderr; the pipe is larger than any line.
template <typename Body>
std::string written_by(Body body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  log::remember_stderr();
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  log::remember_stderr();
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  return text;
}

struct RestoreLevel {
  ~RestoreLevel() { log::set_level(log::Level::kNormal); }
};

}  // namespace cupool::test
