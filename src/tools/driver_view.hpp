// What `cupool doctor` reports about this machine's driver. Needs no CUDA header: it looks up a handful of
// functions by name, whose signatures never change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cupool::tools {

struct DriverView {
  struct Device {
    std::string name;
    uint64_t bytes = 0;
    bool memory_pools = false;
  };
  std::string library;  // where libcuda.so.1 was found; empty: it was not
  std::string error;    // why nothing more is known
  int version = 0;      // as cuDriverGetVersion says, 13000 for 13.0
  bool context_events = false;
  std::vector<Device> devices;
};

DriverView view_driver();

}  // namespace cupool::tools
