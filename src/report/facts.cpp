// See facts.hpp.
#include "report/facts.hpp"

#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "config/options.hpp"
#include "config/process.hpp"

namespace cupool::report {
namespace {

constinit Probe known;
constinit Facts noted;

}  // namespace

void note_facts() {
  noted = {};
  format_into(noted.rank, "{}", config::rank());
  unsigned long long token = now_ns() ^ static_cast<unsigned long long>(getpid()) << 48;
  syscall(SYS_getrandom, &token, sizeof token, 1);
  format_into(noted.instance, "{:016x}", token);
}

void set_probe(const Probe& probe) { known = probe; }
const Probe& probe() { return known; }

Facts facts() {
  Facts out = noted;
  out.pid = getpid();
  utsname names;
  if (uname(&names) == 0) format_into(out.host, "{}", names.nodename);
  out.program = config::program();
  if (known.mode != nullptr) out.mode = known.mode();
  return out;
}

stats::DeviceSums read_device(int number, stats::Reading reading) {
  stats::DeviceSums sums = stats::device(number).read();
  if (known.fill != nullptr) known.fill(number, reading, &sums);
  // The native pool's memory is reserved like any other; its blocks are counted among the live ones already.
  sums.reserved_bytes += sums.native_reserved_bytes;
  sums.peak_reserved_bytes += sums.native_peak_reserved_bytes;
  sums.cached_bytes = sums.reserved_bytes - std::min(sums.reserved_bytes, sums.live_bytes);
  sums.fold_peaks();
  // Every free waited for the device, as the driver's does.
  if (config::options().free == config::FreeMode::kSync) sums.waits_avoided = 0;
  return sums;
}

stats::Sums read_all(stats::Reading reading) {
  stats::Sums sums = stats::sums(reading);
  stats::DeviceSums all;
  uint64_t largest = 0;
  for (int i = 0; i < stats::kMostDevices; ++i) {
    if (!stats::device(i).is_used()) continue;
    const stats::DeviceSums device = read_device(i, reading);
    largest = std::max(largest, device.largest_free_range);
    all.add(device);
  }
  all.allocations += sums.forwarded_allocations;
  all.frees += sums.forwarded_frees + sums.managed_frees;
  all.largest_free_range = largest;
  sums.devices = all;
  return sums;
}

}  // namespace cupool::report
