// Where a report lands: in the directory that was opened first, under a name of its own, whole or not at all.
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "report/file.hpp"

using namespace cupool;

namespace {

class Scratch {
 public:
  Scratch() { REQUIRE(mkdtemp(path_) != nullptr); }
  ~Scratch() { REQUIRE(system(("rm -r " + path()).c_str()) == 0); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/cupool-file-XXXXXX";
};

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  DIR* const all = opendir(folder.c_str());
  REQUIRE(all != nullptr);
  while (const dirent* entry = readdir(all)) {
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  }
  closedir(all);
  return names;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const char* write_word(const std::string& path, report::Write write, const void* argument = nullptr) {
  static char buffer[64];
  static constinit report::Written last{};
  return report::write_file(path.c_str(), last, buffer, sizeof buffer, write, argument);
}

void write_hello(report::Writer& out, const void*) { out.text("hello"); }

}  // namespace

TEST_CASE("a directory that is swapped meanwhile does not lead the report astray") {
  const Scratch scratch;
  const std::string folder = scratch.path() + "/reports";
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  REQUIRE(mkdir((scratch.path() + "/elsewhere").c_str(), 0700) == 0);
  const std::string root = scratch.path();
  const char* const why = write_word(
      folder + "/report",
      [](report::Writer& out, const void* where) {
        const std::string& at = *static_cast<const std::string*>(where);
        out.text("hello");
        REQUIRE(rename((at + "/reports").c_str(), (at + "/moved").c_str()) == 0);
        REQUIRE(symlink((at + "/elsewhere").c_str(), (at + "/reports").c_str()) == 0);
      },
      &root);
  CHECK(why == nullptr);
  CHECK(names_in(root + "/elsewhere").empty());
  CHECK(content(root + "/moved/report") == "hello");
}

TEST_CASE("a report replaces one of its own process and stands beside another's") {
  const Scratch scratch;
  const std::string path = scratch.path() + "/report.json";
  CHECK(write_word(path, write_hello) == nullptr);
  CHECK(write_word(path, write_hello) == nullptr);
  CHECK(names_in(scratch.path()) == std::set<std::string>{"report.json"});
  REQUIRE(unlink(path.c_str()) == 0);
  std::ofstream(path) << "another process's";
  // The clock that stamps files may lag by a tick.
  const timespec later[2] = {{time(nullptr) + 2, 0}, {time(nullptr) + 2, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), later, 0) == 0);
  CHECK(write_word(path, write_hello) == nullptr);
  const std::string beside = "report." + std::to_string(getpid()) + ".json";
  CHECK(names_in(scratch.path()) == std::set<std::string>{"report.json", beside});
  CHECK(content(path) == "another process's");
  CHECK(content(scratch.path() + "/" + beside) == "hello");
}

TEST_CASE("names inserted into a report's path lead into no other directory") {
  report::Facts facts;
  facts.pid = 7;
  facts.program = "../a\nb";
  char out[64];
  report::expand("%e-%r-%p-%h", facts, out, sizeof out);
  CHECK(std::string(out) == ".._a_b-none-7-");
}
