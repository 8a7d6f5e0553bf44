// See launch.hpp.
#include "tools/launch.hpp"

#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "config/options.hpp"
#include "config/parse.hpp"
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
  std::string whole(path, size > 0 ? static_cast<size_t>(size) : 0);
  // A root without /proc: the name by which the kernel was asked to run us.
  const auto* const called = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (whole.empty() && called != nullptr && realpath(called, path) != nullptr) whole = path;
  return whole.substr(0, whole.rfind('/'));
}

bool complained = false;
void complain(const char* sentence) {
  complained = true;
  fprintf(stderr, "cupool: %s\n", sentence);
}

}  // namespace

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

bool preload_library() {
  std::string preload = find_library();
  if (preload.empty()) {
    fprintf(stderr, "cupool: %s is neither beside this command nor in a library folder next to it\n",
            kLibrary);
    return false;
  }
  const char* const before = config::preloaded();
  if (*before != '\0') preload += std::string(":") + before;
  setenv("LD_PRELOAD", preload.c_str(), 1);
  return true;
}

bool set_option(const char* assignment) {
  const char* const equals = strchr(assignment, '=');
  if (equals == nullptr) {
    fprintf(stderr, "cupool: --set takes name=value, not \"%s\"\n", assignment);
    return false;
  }
  std::string name(assignment, equals);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  if (!name.starts_with("CUPOOL_")) name.insert(0, "CUPOOL_");
  const std::string entry = name + "=" + (equals + 1);
  const char* const environment[] = {entry.c_str(), nullptr};
  complained = false;
  config::read_environment(environment, complain);
  if (complained) return false;
  setenv(name.c_str(), equals + 1, 1);
  return true;
}

int become(char** arguments) {
  execvp(arguments[0], arguments);
  const int error = errno;
  fprintf(stderr, "cupool: cannot run %s: %s\n", arguments[0], strerror(error));
  return error == ENOENT ? kNotFound : kCannotRun;
}

}  // namespace cupool::tools
