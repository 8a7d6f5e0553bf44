// A line on a terminal's stderr, written over again and again, for what lasts longer than a second: how far
// it is. Nothing where stderr is no terminal. One at a time.
#pragma once

#include <cstdint>
#include <string>

namespace cupool::tools {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Called now and then: "tuning [#####.....] 50 %, mapped".
  void show(const char* what, uint64_t done, uint64_t all, const std::string& more = "");
  // Of which nobody knows how long it takes.
  void show(const char* what);

 private:
  bool is_due() const;
  void draw(const std::string& text);

  const bool is_terminal_;
  const uint64_t began_;
  uint64_t drawn_ = 0;
};

}  // namespace cupool::tools
