// See watchers.hpp.
#include "config/watchers.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/format.hpp"
#include "base/output.hpp"
#include "config/process.hpp"

namespace cupool::config {
namespace {

// The whole of a small file of /proc as text; empty when there is none.
template <size_t size>
const char* read_text(const char* path, char (&text)[size]) {
  text[0] = '\0';
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  const ssize_t got = read(file, text, size - 1);
  close(file);
  text[got > 0 ? got : 0] = '\0';
  return text;
}

// The name of the process that traces this one; empty: it is not traced.
template <size_t size>
void find_tracer(char (&name)[size]) {
  char status[512];  // enough: the line is among the first; the stack may be small
  name[0] = '\0';
  const char* const line = strstr(read_text("/proc/self/status", status), "TracerPid:");
  const int tracer = line == nullptr ? 0 : atoi(line + sizeof("TracerPid:") - 1);
  if (tracer == 0) return;
  char path[64];
  format_into(path, "/proc/{}/comm", tracer);
  read_text(path, name);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

const char* watching_tool(const char* const* environment, const char* tracer) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    const bool injects = entry.starts_with("CUDA_INJECTION64_PATH=") || entry.starts_with("LD_PRELOAD=");
    if (entry.starts_with("NV_SANITIZER_") || (injects && contains(entry, "sanitizer-")))
      return "compute-sanitizer";
    if (entry.starts_with("CUDA_MEMCHECK=") || (injects && contains(entry, "memcheck")))
      return "cuda-memcheck";
  }
  // A passive tracer such as strace does not check memory accesses.
  return contains(tracer, "gdb") || contains(tracer, "lldb") ? "a debugger" : nullptr;
}

const char* watching_tool() {
  const CancelShield shield;
  char tracer[64];
  find_tracer(tracer);
  return watching_tool(environment(), tracer);
}

}  // namespace cupool::config
