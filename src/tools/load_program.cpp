// See load_program.hpp.
#include "tools/load_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "config/process.hpp"
#include "replay/readers.hpp"
#include "tools/recording.hpp"
#include "tools/trace_file.hpp"
#include "trace/format.hpp"

namespace cupool::tools {
namespace {

bool read_all(int file, std::string* out) {
  constexpr size_t kPiece = 1 << 20;
  for (;;) {
    const size_t before = out->size();
    out->resize(before + kPiece);
    const ssize_t got = read(file, out->data() + before, kPiece);
    out->resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

// What gzip says the file holds.
bool decompress(const std::string& path, std::string* out, std::string* error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *error = strerror(errno);
    return false;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* const words[] = {"gzip", "-dc", "--", path.c_str(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "gzip", &actions, nullptr, const_cast<char* const*>(words),
                                  const_cast<char* const*>(config::environment()));
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const bool is_read = failed == 0 && read_all(ends[0], out);
  close(ends[0]);
  int status = 0;
  if (failed == 0) waitpid(child, &status, 0);
  if (failed != 0)
    *error = std::string("gzip cannot be started: ") + strerror(failed);
  else if (!is_read || status != 0)
    *error = "gzip cannot read it";
  return error->empty();
}

}  // namespace

bool read_program(std::string_view bytes, bool with_names, replay::Program* out, std::string* error) {
  uint32_t magic = 0;
  memcpy(&magic, bytes.data(), std::min(sizeof magic, bytes.size()));
  if (magic == trace::kMagic) {
    const OpenFile file(fmemopen(const_cast<char*>(bytes.data()), bytes.size(), "r"));
    if (file == nullptr) *error = strerror(errno);
    return file != nullptr && read_recording(file.get(), with_names, out, error);
  }
  const replay::Reader reader = replay::reader_of(bytes);
  if (reader != nullptr) return reader(bytes, out, error);
  *error = "it is neither a trace of cupool's nor a snapshot of PyTorch's, a log of RMM's or lines of text";
  return false;
}

bool load_program(const std::string& path, bool with_names, replay::Program* out, std::string* error) {
  struct stat about;
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    *error = "it is not a file";
    return false;
  }
  const OpenFile file(fopen(path.c_str(), "re"));
  if (file == nullptr) {
    *error = strerror(errno);
    return false;
  }
  uint8_t first[4] = {};
  const size_t got = fread(first, 1, sizeof first, file.get());
  rewind(file.get());
  uint32_t magic = 0;
  memcpy(&magic, first, sizeof magic);
  if (got == sizeof magic && magic == trace::kMagic)
    return read_recording(file.get(), with_names, out, error);
  constexpr uint32_t kZstandard = 0xfd2fb528;
  if (got == sizeof magic && magic == kZstandard) {
    const OpenFile plain = open_trace(path);
    if (plain != nullptr) return read_recording(plain.get(), with_names, out, error);
    *error = "it cannot be decompressed";
    return false;
  }
  std::string content;
  if (got >= 2 && first[0] == 0x1f && first[1] == 0x8b) {
    if (!decompress(path, &content, error)) return false;
  } else if (!read_all(fileno(file.get()), &content)) {
    *error = strerror(errno);
    return false;
  }
  return read_program(content, with_names, out, error);
}

}  // namespace cupool::tools
