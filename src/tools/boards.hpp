// What `cupool top` and `cupool trim` share: the boards that this user may read (root: those of all users),
// the entries on them with their users' names, and requests to all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "neighbours/board.hpp"

namespace cupool::tools {

struct Neighbour {
  neighbours::Entry entry;
  std::string user;
};

class Boards {
 public:
  Boards();
  bool any() const { return !boards_.empty(); }
  // Every living process, the largest reserved memory first.
  std::vector<Neighbour> read();
  // Posts the request and waits until the processes that it names have answered, for `ms` at most. Returns
  // when it was posted, in board_time(): entries with an older stamp have not answered.
  uint64_t ask(const neighbours::Ask& ask, int ms);
  // To stderr: there is no board, and how a process comes to be on one.
  void explain_none() const;

 private:
  struct One {
    std::unique_ptr<neighbours::Board> board;
    std::string user;
  };
  void add(uint32_t user, bool own);
  const char* directory_;
  std::string refusal_;
  std::vector<One> boards_;
};

}  // namespace cupool::tools
