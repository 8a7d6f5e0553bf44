// A log line is one write with our prefix, is cut rather than split, and leaves errno alone.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "base/log.hpp"
#include "written.hpp"

using namespace cupool;
using test::RestoreLevel;
using test::written_by;

TEST_CASE("a line carries the prefix and ends once") {
  CHECK(written_by([] { log::line("{} blocks", 3); }) == "cupool: 3 blocks\n");
}

TEST_CASE("a line that is too long is truncated and still ends") {
  const std::string text = written_by([] { log::line("{}", std::string(5000, 'x').c_str()); });
  CHECK(text.size() <= 1024);
  CHECK(text.back() == '\n');
  CHECK(text.find('\n') == text.size() - 1);
}

TEST_CASE("a line stays one line whatever is in it") {
  CHECK(written_by([] { log::line("{}", "a\nb\r\x1b[31m\x7f\xc3\xa9\t"); }) ==
        "cupool: a?b??[31m?\xc3\xa9?\n");
  // The C1 controls, a broken character, a direction override, a line separator.
  CHECK(written_by([] {
          log::line("{}",
                    "\xc2\x9b"
                    "31m\xff\xe2\x80\xae\xe2\x80\xa8|");
        }) == "cupool: ??31m???????|\n");
}

TEST_CASE("a line goes to stderr and never to another file that got descriptor 2") {
  int data[2];
  REQUIRE(pipe(data) == 0);
  const std::string said = written_by([&] {
    dup2(data[1], STDERR_FILENO);
    log::line("x");
    log::raw("y\n", 2);
    close(data[1]);
  });
  CHECK(said.empty());
  close(data[1]);
  char byte = 0;
  CHECK(read(data[0], &byte, 1) == 0);
  close(data[0]);
}

TEST_CASE("a closed reader loses the line and does not kill the process") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  close(ends[0]);
  log::remember_stderr();
  log::line("nobody reads this");
  dup2(saved, STDERR_FILENO);
  close(saved);
  log::remember_stderr();
  sigset_t pending;
  REQUIRE(sigpending(&pending) == 0);
  CHECK(sigismember(&pending, SIGPIPE) == 0);
}

TEST_CASE("a warning is printed at every level, details only at verbose") {
  const RestoreLevel restore;
  CHECK(written_by([] { log::detail("x"); }).empty());
  log::set_level(log::Level::kVerbose);
  CHECK(written_by([] { log::detail("x"); }) == "cupool: x\n");
  log::set_level(log::Level::kQuiet);
  CHECK(written_by([] { log::line("x"); }) == "cupool: x\n");
  CHECK(written_by([] { log::detail("x"); }).empty());
  CHECK(written_by([] { log::raw("asked\n", 6); }) == "asked\n");
}

TEST_CASE("logging leaves errno as the program had it") {
  int after = 0;
  written_by([&] {
    close(STDERR_FILENO);
    errno = ENOENT;
    log::line("nobody hears this");
    after = errno;
  });
  CHECK(after == ENOENT);
}

TEST_CASE("a message for the first time only is printed once") {
  log::Once once;
  CHECK(once.first());
  CHECK_FALSE(once.first());
}

TEST_CASE("a detail says which process speaks, a warning does not need to") {
  const RestoreLevel restore;
  log::set_level(log::Level::kVerbose);
  log::set_speaker([](std::span<char> out) { return format_into(out, "solver[{}]: ", 7); });
  CHECK(written_by([] { log::detail("x"); }) == "cupool: solver[7]: x\n");
  CHECK(written_by([] { log::line("x"); }) == "cupool: x\n");
  log::set_speaker(nullptr);
  CHECK(written_by([] { log::detail("x"); }) == "cupool: x\n");
}
