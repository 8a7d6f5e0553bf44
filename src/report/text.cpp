// The reports for people: the summary at exit, and the whole table.
#include <cinttypes>
#include <cstring>

#include "base/bytes.hpp"
#include "base/format.hpp"
#include "config/options.hpp"
#include "config/print.hpp"
#include "report/forms.hpp"

namespace cupool::report {
namespace {

bool ends_with(const char* name, const char* end) {
  const size_t size = strlen(name);
  const size_t wanted = strlen(end);
  return size >= wanted && strcmp(name + size - wanted, end) == 0;
}

void write_counts(Writer& out, const stats::CounterInfo& info, uint64_t value) {
  if (value == 0) return;
  out.print("cupool: %-24s %16" PRIu64 "  %s", info.name, value, info.doc);
  if (ends_with(info.name, "_bytes")) out.print(" (%s)", print_bytes(value).text);
  if (ends_with(info.name, "_ns")) out.print(" (%.3f s)", static_cast<double>(value) * 1e-9);
  out.text("\n");
}

void write_sizes(Writer& out, const stats::DeviceSums& sums) {
  for (size_t i = 0; i < stats::kSizeBuckets; ++i) {
    if (sums.sizes[i] == 0) continue;
    out.print("cupool: up to %-18s %16" PRIu64 "  allocations of such a size\n",
              print_bytes(uint64_t{1} << i).text, sums.sizes[i]);
  }
}

void write_mode(Writer& out, const Mode& mode) {
  out.text(mode.name);
  if (*mode.reason != '\0') out.print(" (%s)", mode.reason);
}

int count_devices() {
  int devices = 0;
  for (int i = 0; i < stats::kMostDevices; ++i) devices += stats::device(i).is_used() ? 1 : 0;
  return devices;
}

const char* percent_text(double part, char* room, size_t size) {
  format(room, size, part >= 0.9995 && part < 1 ? "%.3f %%" : "%.1f %%", part * 100);
  return room;
}

}  // namespace

void write_summary(Writer& out, const Facts& facts, stats::Reading reading) {
  const stats::Sums sums = read_all(reading);
  const stats::DeviceSums& all = sums.devices;
  const uint64_t pooled = all.allocations - sums.forwarded_allocations;
  if (pooled == 0) return;
  const int devices = count_devices();
  char part[32];
  const uint64_t served = all.hits_at_once + all.hits_after_wait + all.native_allocations;
  const double hits = static_cast<double>(served) / static_cast<double>(pooled);
  out.print("cupool: %s[%d]%s%s: %" PRIu64 " allocations, %s from the pool; ", facts.program, facts.pid,
            *facts.rank != '\0' ? " rank " : "", facts.rank, all.allocations,
            percent_text(hits, part, sizeof part));
  write_mode(out, facts.mode);
  out.print("\ncupool: peak live %s, peak reserved %s on %d device%s, fragmentation %.0f %%\n",
            print_bytes(all.peak_live_bytes).text, print_bytes(all.peak_reserved_bytes).text, devices,
            devices == 1 ? "" : "s", all.fragmentation() * 100);
  out.print("cupool: %" PRIu64 " driver allocations and %" PRIu64 " frees took %.1f ms; %" PRIu64
            " device-wide waits avoided, about %.3f s saved\n",
            all.segments_allocated, all.segments_released,
            static_cast<double>(all.driver_allocate_ns + all.driver_release_ns) * 1e-6, all.waits_avoided,
            static_cast<double>(all.saved_ns) * 1e-9);
  if (all.out_of_memory != 0) {
    out.print("cupool: %" PRIu64 " allocations failed for want of memory\n", all.out_of_memory);
  }
}

void write_text(Writer& out, const Facts& facts, stats::Reading reading) {
  const stats::Sums sums = read_all(reading);
  out.print("cupool: %s, process %d on %s%s%s; ", facts.program, facts.pid, facts.host,
            *facts.rank != '\0' ? ", rank " : "", facts.rank);
  write_mode(out, facts.mode);
  out.text("\n");
  stats::visit(sums, [&](const stats::CounterInfo& info, uint64_t value) { write_counts(out, info, value); });
  out.print("cupool: %-24s %15.1f%%  1 - peak live / peak reserved\n", "fragmentation",
            sums.devices.fragmentation() * 100);
  write_sizes(out, sums.devices);
  for (int i = 0; i < stats::kMostDevices && count_devices() > 1; ++i) {
    if (!stats::device(i).is_used()) continue;
    const stats::DeviceSums device = read_device(i, reading);
    out.print("cupool: --- device %d, fragmentation %.1f %%\n", i, device.fragmentation() * 100);
    stats::visit(device,
                 [&](const stats::CounterInfo& info, uint64_t value) { write_counts(out, info, value); });
    write_sizes(out, device);
  }
  const config::Options plain = config::defaults();
  config::visit_changed(config::options(), plain, [&](const config::OptionInfo& info, const char* value) {
    out.print("cupool: %s=%s\n", info.name, value);
  });
}

}  // namespace cupool::report
