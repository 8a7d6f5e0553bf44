// A bar on the terminal for what lasts longer than a second, on stderr; nothing where that is no terminal. It
// goes by the bytes that were read of a file. One at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace cupool::see {

class Progress {
 public:
  // `file`: whose place says how far it is; `bytes`: how many it has.
  Progress(std::FILE* file, uint64_t bytes);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Called now and then while the file is read.
  void read();
  // What is done behind that.
  void step(const char* what);

 private:
  void draw(const std::string& text);

  std::FILE* file_;
  uint64_t bytes_;
  uint64_t began_;
  uint64_t drawn_ = 0;
  bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace cupool::see
