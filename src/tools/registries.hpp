// What `cupool top` and `cupool trim` share: the registries that this user may read (root: those of all
// users), the entries in them with their users' names, and requests to all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "neighbours/registry.hpp"

namespace cupool::tools {

struct Neighbour {
  neighbours::Entry entry;
  std::string user;
};

class Registries {
 public:
  Registries();
  bool any() const { return !registries_.empty(); }
  // Every living process, the largest reserved memory first.
  std::vector<Neighbour> read();
  // Posts the request and waits until the processes that it names have answered, for `ms` at most. Returns
  // when it was posted, in registry_time(): entries with an older stamp have not answered.
  uint64_t ask(const neighbours::Ask& ask, int ms);
  // Says on stderr that there is no registry, and how a process joins one.
  void explain_none() const;
  // To stderr, if some registries are not read because there are too many.
  void warn_left_out() const;

 private:
  struct One {
    std::unique_ptr<neighbours::Registry> registry;
    std::string user;
  };
  void add_own();
  void add(uint32_t user);
  const char* directory_;
  std::string refusal_;
  size_t left_out_ = 0;
  std::vector<One> registries_;
};

}  // namespace cupool::tools
