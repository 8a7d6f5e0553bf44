// Descriptors of ours in a table that belongs to the program: kept beyond the numbers that it expects of its
// own next open(), and recognised again, because a program may close every descriptor and use the number
// for a file of its own. No state.
#pragma once

#include <cstdint>

namespace cupool {

// The same file under a high number, closed on exec; the old number is closed. Where there is no high number
// the old one stays.
int move_up(int descriptor);

// A descriptor that is kept: which number, and which file that was.
class KeptDescriptor {
 public:
  constexpr KeptDescriptor() = default;
  explicit KeptDescriptor(int number);

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  // Whether the number still is this file.
  bool is_ours() const;
  // Closes it if it still is this file.
  void close();

 private:
  int number_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

}  // namespace cupool
