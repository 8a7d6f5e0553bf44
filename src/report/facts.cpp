// See facts.hpp.
#include "report/facts.hpp"

#include <errno.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "config/options.hpp"

namespace cupool::report {
namespace {

constinit Probe known;

}  // namespace

void set_probe(const Probe& probe) { known = probe; }
const Probe& probe() { return known; }

Facts facts() {
  Facts out;
  out.pid = getpid();
  utsname names;
  if (uname(&names) == 0) snprintf(out.host, sizeof out.host, "%s", names.nodename);
  snprintf(out.rank, sizeof out.rank, "%s", config::rank());
  out.program = program_invocation_short_name;
  if (known.mode != nullptr) out.mode = known.mode();
  return out;
}

stats::DeviceSums read_device(int number, stats::Reading reading) {
  stats::DeviceSums sums = stats::device(number).read();
  if (known.largest_free != nullptr) sums.largest_free_range = known.largest_free(number, reading);
  return sums;
}

uint64_t largest_free_range(stats::Reading reading) {
  uint64_t largest = 0;
  for (int i = 0; i < stats::kMostDevices; ++i) {
    if (stats::device(i).is_used()) largest = std::max(largest, read_device(i, reading).largest_free_range);
  }
  return largest;
}

}  // namespace cupool::report
