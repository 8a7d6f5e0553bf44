// Which contexts may access the mapped memory of which others: the program's own wishes, as a list. The lock
// of the table of pools protects it; nothing here calls the driver.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "driver/driver.hpp"

namespace cupool::pool {

class Peers {
 public:
  // A context that has access, and its device.
  struct Guest {
    driver::Context context;
    int device;
  };
  // Devices that have lost access, by the context that owns the memory.
  using Lost = std::vector<std::pair<driver::Context, int>>;

  void set(driver::Context owner, const Guest& guest, bool allowed);
  // Whether any context of a device has access.
  bool has(driver::Context owner, int device) const;
  // The devices of all guests of a context.
  std::vector<int> devices_of(driver::Context owner) const;

  // A context begins to end: work of it may still use what it has access to.
  void note_ending(driver::Context context, uint64_t ending);
  // It has ended (`gone`), or lives on. Returns the devices that no context of theirs gives access any more.
  Lost end(driver::Context context, uint64_t ending, bool gone);
  void clear() { all_.clear(); }

 private:
  struct Peer {
    driver::Context owner;
    Guest guest;
    uint64_t ending;  // the number of the end of either; 0: both live
  };
  std::vector<Peer> all_;
};

}  // namespace cupool::pool
