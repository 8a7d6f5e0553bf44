// A folder for traces, and what the recorder is told of the process.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "trace/recorder.hpp"

namespace cupool::test {

struct Scratch {
  Scratch() {
    char name[] = "/tmp/cupool-trace-XXXXXX";
    if (mkdtemp(name) == nullptr) abort();
    folder = name;
  }
  ~Scratch() { std::filesystem::remove_all(folder); }
  std::string file(const char* name) const { return folder + "/" + name; }
  std::string folder;
};

inline constexpr const char* kCalls[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuCtxSynchronize"};
inline trace::About about() {
  return {42, "a program", "a host", "3", "0.0.1", [](size_t i) { return kCalls[i]; }, 3};
}

// Creates the file, as the library does before it begins.
inline trace::Settings settings_for(const std::string& path) {
  std::ofstream(path).close();
  struct stat made = {};
  stat(path.c_str(), &made);
  trace::Settings settings;
  settings.path = path.c_str();
  settings.device = made.st_dev;
  settings.inode = made.st_ino;
  return settings;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace cupool::test
