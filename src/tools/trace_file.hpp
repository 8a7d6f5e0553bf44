// Opens the file of a trace, plain or compressed, for the reader; and compresses one. Zstandard is opened at
// run time, where a file needs it.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace cupool::tools {

struct CloseFile {
  void operator()(std::FILE* file) const { fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

// Null: it cannot be read, and why was said on stderr.
OpenFile open_trace(const std::string& path);

// Writes `from` compressed to `to`, which must not exist. Empty, or why not.
std::string compress_trace(const std::string& from, const std::string& to);

}  // namespace cupool::tools
