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
//   CUPOOL_SIM_ORACLE          0 switches the oracle off (for benchmarks)
#pragma once

#include <cstdint>
#include <string>

namespace cupool::sim {

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t memory = 4ull << 30;
  int devices = 1;
  int driver_version = 13000;
  std::string faults;
  std::string report;
  bool oracle = true;
};

const Options& options();

}  // namespace cupool::sim
