// The environment of the simulated driver, read once. Junk values fall back to the default with one line
// on stderr: a test double must never be the reason why a program cannot start.
//   CUPOOL_SIM_SEED            scheduler seed (default 1)
//   CUPOOL_SIM_MEMORY          capacity of each device, K/M/G/T suffixes (default 4G); under ThreadSanitizer
//   on
//                              aarch64 at most 384M, for want of addresses
//   CUPOOL_SIM_DEVICES         number of devices (default 1, at most 16)
//   CUPOOL_SIM_DRIVER_VERSION  version to pretend to be, e.g. 12040 (default 13000)
//   CUPOOL_SIM_FAULTS          see faults.hpp
//   CUPOOL_SIM_REPORT          file for the JSON report at exit
//   CUPOOL_SIM_ORACLE          0 switches the oracles off (for benchmarks)
//   CUPOOL_SIM_WAITS           which waits of a preloaded library are none that it adds (see
//   added_waits.hpp): any
//                              (default: for work submitted before a free of any thread in that context, or
//                              of the waiting thread in another), exact (of the waiting thread alone), off
//                              (all: nothing is reported)
//   CUPOOL_SIM_CHARGES         1: contexts, modules, kernels when first launched and a larger print buffer
//   take
//                              memory of the device, as on a real one (see charges.hpp); default 0
//   CUPOOL_SIM_NVML            what libnvidia-ml.so.1 beside this driver says (see nvml.cpp): hidden (it
//   lists
//                              other processes alone, as in a container), off (it does not start); default:
//                              all
//   CUPOOL_SIM_HANG_MS         a process in which nothing moves for so long hangs (default 30000, 0: it is
//   let be);
//                              one that provably cannot go on is found at once
// Exit codes: 86 a hazard, 87 a hang that only the preloaded library causes, 88 an added wait, 89 a hang of
// the program's own. Each comes with both sides of its story on stderr.
#pragma once

#include <cstdint>
#include <string>

namespace cupool::sim {

enum class AllowedWaits { kAny, kExact, kAll };

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t memory = 4ull << 30;
  int devices = 1;
  int driver_version = 13000;
  std::string faults;
  std::string report;
  bool oracle = true;
  bool charges = false;
  AllowedWaits waits = AllowedWaits::kAny;
  std::uint64_t hang_ms = 30000;
};

const Options& options();

}  // namespace cupool::sim
