// `cupool run`: puts libcupool.so in front of LD_PRELOAD and becomes the program. The library is looked for
// beside the command (a build tree), then in the library folders next to the command's (an installation).
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/commands.hpp"

namespace cupool::tools {
namespace {

constexpr char kLibrary[] = "libcupool.so";
// As it was installed; the usual names behind it are for a prefix that was moved.
constexpr char kInstalled[] = "../" CUPOOL_LIBDIR;
constexpr const char* kFolders[] = {".", kInstalled, "../lib", "../lib64"};

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  if (size <= 0) return {};
  const std::string whole(path, static_cast<size_t>(size));
  return whole.substr(0, whole.rfind('/'));
}

std::string find_library() {
  const std::string folder = own_folder();
  if (folder.empty()) return {};
  for (const char* const place : kFolders) {
    char resolved[PATH_MAX];
    const std::string candidate = folder + "/" + place + "/" + kLibrary;
    if (realpath(candidate.c_str(), resolved) != nullptr) return resolved;
  }
  return {};
}

}  // namespace

int run(int count, char** arguments) {
  if (count > 0 && strcmp(arguments[0], "--") == 0) {
    --count;
    ++arguments;
  }
  if (count == 0) {
    fprintf(stderr, "cupool: run needs a program\n");
    return kMisuse;
  }
  std::string preload = find_library();
  if (preload.empty()) {
    fprintf(stderr, "cupool: %s is neither beside this command nor in a library folder next to it\n",
            kLibrary);
    return kNotFound;
  }
  const char* const before = getenv("LD_PRELOAD");
  if (before != nullptr && *before != '\0') preload += std::string(":") + before;
  setenv("LD_PRELOAD", preload.c_str(), 1);
  execvp(arguments[0], arguments);
  fprintf(stderr, "cupool: cannot run %s: %s\n", arguments[0], strerror(errno));
  return errno == ENOENT ? kNotFound : kCannotRun;
}

}  // namespace cupool::tools
