// See facts.hpp.
#include "report/facts.hpp"

#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "config/process.hpp"

namespace cupool::report {
namespace {

constinit Probe known;
constinit Facts noted;

size_t begin_detail(std::span<char> out) { return format_into(out, "{}: ", who()); }

}  // namespace

void note_facts() {
  noted = {};
  format_into(noted.rank, "{}", config::rank());
  unsigned long long token = now_ns() ^ static_cast<unsigned long long>(getpid()) << 48;
  syscall(SYS_getrandom, &token, sizeof token, 1);
  format_into(noted.instance, "{:016x}", token);
  log::set_speaker(begin_detail);
}

WhoText who() {
  WhoText out;
  format_into(out.text, "{}[{}]{}{}", config::program(), getpid(), *noted.rank != '\0' ? " rank " : "",
              noted.rank);
  return out;
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

namespace {

// What follows from the counts of a device.
void settle(stats::DeviceSums* sums) {
  // The native pool's memory is reserved like any other; its blocks are counted among the live ones already.
  sums->reserved_bytes += sums->native_reserved_bytes;
  sums->peak_reserved_bytes += sums->native_peak_reserved_bytes;
  sums->cached_bytes = sums->reserved_bytes - std::min(sums->reserved_bytes, sums->live_bytes);
  sums->peak_cached_bytes = std::max(sums->peak_cached_bytes, sums->cached_bytes);
  sums->fold_peaks();
}

class Total {
 public:
  void add(const stats::DeviceSums& device) {
    largest_ = std::max(largest_, device.largest_free_range);
    all_.add(device);
  }
  stats::Sums with(stats::Sums sums) {
    all_.allocations += sums.forwarded_allocations;
    all_.frees += sums.forwarded_frees + sums.managed_frees;
    all_.largest_free_range = largest_;
    sums.devices = all_;
    return sums;
  }

 private:
  stats::DeviceSums all_;
  uint64_t largest_ = 0;
};

}  // namespace

stats::DeviceSums read_device(int number, stats::Reading reading) {
  stats::DeviceSums sums = stats::device(number).read();
  sums.add_spilled(stats::spilled(number).read());
  if (known.fill != nullptr) known.fill(number, reading, &sums);
  settle(&sums);
  // Every free waited for the device, as the driver's does.
  if (config::options().free == config::FreeMode::kSync) sums.waits_avoided = 0;
  return sums;
}

stats::Sums read_all(stats::Reading reading) {
  const stats::Sums sums = stats::sums(reading);
  Total total;
  for (int i = 0; i < stats::kMostDevices; ++i) {
    if (stats::device(i).is_used()) total.add(read_device(i, reading));
  }
  return total.with(sums);
}

stats::Sums add_devices(stats::Sums sums, const stats::DeviceSums* devices, size_t count) {
  Total total;
  for (size_t i = 0; i < count; ++i) {
    stats::DeviceSums device = devices[i];
    settle(&device);
    total.add(device);
  }
  return total.with(sums);
}

}  // namespace cupool::report
