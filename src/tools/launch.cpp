// See launch.hpp.
#include "tools/launch.hpp"

#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/say.hpp"
#include "config/parse.hpp"
#include "config/process.hpp"
#include "tools/commands.hpp"

namespace cupool::tools {
namespace {

constexpr char kLibrary[] = "libcupool.so";
// The installed library folder; the usual names after it are for a relocated prefix.
constexpr char kInstalled[] = "../" CUPOOL_LIBDIR;
constexpr char kOfMachine[] = "../lib/" CUPOOL_TRIPLET;
constexpr const char* kFolders[] = {".", kInstalled, "../lib", "../lib64", kOfMachine};

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  std::string whole(path, size > 0 ? static_cast<size_t>(size) : 0);
  // Without /proc: the path that was passed to execve.
  const auto* const called = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (whole.empty() && called != nullptr && realpath(called, path) != nullptr) whole = path;
  return whole.substr(0, whole.rfind('/'));
}

// The library's complaint about one setting, without the consequence. Sentences that are only notes are left
// to the library.
std::string complaint;
void complain(const char* sentence) {
  const std::string_view text(sentence);
  const size_t consequence = std::min(text.find("; using "), text.find("; ignoring "));
  if (consequence != std::string_view::npos) complaint = text.substr(0, consequence);
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
    say(stderr,
        "cupool: {} is neither beside this command nor in a library folder next to it; install both from "
        "one package\n",
        kLibrary);
    return false;
  }
  // LD_PRELOAD cannot express a space or a colon; a folder in LD_LIBRARY_PATH may contain a space.
  if (preload.find(':') != std::string::npos) {
    say(stderr, "cupool: {} has a colon in its path, which LD_PRELOAD cannot hold; install it elsewhere\n",
        preload);
    return false;
  }
  if (preload.find(' ') != std::string::npos) {
    std::string folders = preload.substr(0, preload.rfind('/'));
    const char* const others = config::library_path();
    if (*others != '\0') folders += std::string(":") + others;
    setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
    preload = kLibrary;
  }
  const char* const before = config::preloaded();
  if (*before != '\0') preload += std::string(":") + before;
  setenv("LD_PRELOAD", preload.c_str(), 1);
  return true;
}

std::string option_name(std::string_view word) {
  std::string name(word);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  if (!name.starts_with("CUPOOL_")) name.insert(0, "CUPOOL_");
  return name;
}

Program find_program(const char* name) {
  const auto is_program = [](const std::string& path) {
    struct stat about;
    return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  errno = 0;
  if (strchr(name, '/') != nullptr) {
    if (is_program(name)) return {true, 0};
    return {false, errno == 0 ? EACCES : errno};
  }
  std::string folders = config::program_path();
  for (size_t at = 0; at <= folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    const std::string folder = folders.substr(at, end - at);
    if (is_program((folder.empty() ? "." : folder) + "/" + name)) return {true, 0};
    at = end + 1;
  }
  return {false, ENOENT};
}

std::string option_entry(const char* assignment) {
  const char* const equals = strchr(assignment, '=');
  if (equals == nullptr) {
    say(stderr, "cupool: --set takes name=value, not \"{}\"\n", assignment);
    return {};
  }
  const std::string name = option_name({assignment, static_cast<size_t>(equals - assignment)});
  std::string entry = name + "=" + (equals + 1);
  const char* const environment[] = {entry.c_str(), nullptr};
  complaint.clear();
  config::read_environment(environment, complain);
  if (!complaint.empty()) {
    say(stderr, "cupool: {}; nothing was started\n", complaint);
    return {};
  }
  return entry;
}

bool set_option(const char* assignment) {
  const std::string entry = option_entry(assignment);
  if (entry.empty()) return false;
  const size_t equals = entry.find('=');
  setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  return true;
}

int cannot_run(const char* name, int error) {
  say(stderr, "cupool: cannot run {}: {}\n", name, strerror(error));
  return error == ENOENT ? kNotFound : kCannotRun;
}

int become(std::vector<std::string> words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  return cannot_run(pointers[0], errno);
}

}  // namespace cupool::tools
