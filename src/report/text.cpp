// The reports for people: the summary at exit, and the whole table.
#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "config/options.hpp"
#include "config/print.hpp"
#include "report/charges.hpp"
#include "report/forms.hpp"

namespace cupool::report {
namespace {

bool ends_with(const char* name, const char* end) {
  const size_t size = strlen(name);
  const size_t wanted = strlen(end);
  return size >= wanted && strcmp(name + size - wanted, end) == 0;
}

bool is_size(const char* name) {
  return ends_with(name, "_bytes") || strncmp(name, "bytes_", 6) == 0 ||
         strcmp(name, "largest_free_range") == 0;
}

void write_counts(Writer& out, const stats::CounterInfo& info, uint64_t value) {
  if (value == 0) return;
  out.print("cupool: {:<24} {:16}  {}", trusted(info.name), value, info.doc);
  if (is_size(info.name)) out.print(" ({})", print_bytes(value));
  if (ends_with(info.name, "_ns")) out.print(" ({:.3f} s)", static_cast<double>(value) * 1e-9);
  out.text("\n");
}

void write_sizes(Writer& out, const stats::DeviceSums& sums) {
  for (size_t i = 0; i < stats::kSizeBuckets; ++i) {
    if (sums.sizes[i] == 0) continue;
    out.print("cupool: up to {:<18} {:16}  allocations of such a size\n",
              trusted(print_bytes(uint64_t{1} << i)), sums.sizes[i]);
  }
}

void write_mode(Writer& out, const Mode& mode) {
  out.text(mode.name);
  if (*mode.reason != '\0') out.print(" ({})", mode.reason);
}

int count_devices() {
  int devices = 0;
  for (int i = 0; i < stats::kMostDevices; ++i) devices += stats::device(i).is_used() ? 1 : 0;
  return devices;
}

// "1 allocation", "2 allocations": a number and what it counts.
void write_count(Writer& out, uint64_t number, const char* what) {
  out.print("{} {}{}", number, what, number == 1 ? "" : "s");
}

void write_reuse(Writer& out, const stats::DeviceSums& all, uint64_t pooled) {
  const uint64_t cached = pooled - all.native_allocations;
  if (cached == 0) {
    out.text(", all from the driver's stream-ordered pool");
    return;
  }
  // What the driver's pool reuses it does not tell.
  if (all.native_allocations != 0)
    out.print(", {} from the driver's stream-ordered pool, of the others", all.native_allocations);
  const char* const joint = all.native_allocations != 0 ? " " : ", ";
  if (all.reused == 0) {
    out.print("{}none reused", joint);
    return;
  }
  const double part = static_cast<double>(all.reused) / static_cast<double>(cached);
  out.print("{}{:.{}f} % reused", joint, part * 100, part >= 0.9995 && part < 1 ? 3 : 1);
}

void write_managed(Writer& out, uint64_t managed, uint64_t forwarded) {
  write_count(out, managed, "managed allocation");
  if (forwarded == 0) return;
  if (forwarded != managed) out.print(", {}", forwarded);
  out.text(" by the driver itself");
}

void write_memory(Writer& out, const stats::DeviceSums& all, int devices) {
  if (all.peak_live_most_bytes == all.peak_live_bytes) {
    out.print("cupool: peak live {}", print_bytes(all.peak_live_bytes));
  } else {
    out.print("cupool: peak live {} to {}", print_bytes(all.peak_live_bytes),
              print_bytes(all.peak_live_most_bytes));
  }
  out.print(", peak reserved {} on ", print_bytes(all.peak_reserved_bytes));
  write_count(out, static_cast<uint64_t>(devices), "device");
  out.print(", {} of it idle\n", print_bytes(all.idle_at_peak_bytes));
}

void write_driver_calls(Writer& out, const stats::DeviceSums& all) {
  const char* before = "cupool: ";
  if (all.segments_allocated + all.segments_released != 0) {
    out.text(before);
    write_count(out, all.segments_allocated, "driver allocation");
    out.text(" and ");
    write_count(out, all.segments_released, "free");
    out.print(" took {:.1f} ms", static_cast<double>(all.driver_allocate_ns + all.driver_release_ns) * 1e-6);
    before = "; ";
  }
  if (all.waits_avoided != 0) {
    out.text(before);
    write_count(out, all.waits_avoided, "device-wide wait");
    out.text(" avoided");
    before = "; ";
  }
  if (*before == ';') out.text("\n");
}

// What kept blocks off the device.
const char* why_spilled(const stats::DeviceSums& all) {
  if (all.spilled_for_limit == 0) return "the device had no room";
  if (all.spilled_for_limit == all.spilled_allocations) return "CUPOOL_LIMIT left no room";
  return "CUPOOL_LIMIT left no room, or the device had none";
}

}  // namespace

void write_summary(Writer& out, const Facts& facts, stats::Reading reading) {
  if (config::options().log == config::Verbosity::kQuiet || config::options().stepped_aside) return;
  const stats::Sums sums = read_all(reading);
  const stats::DeviceSums& all = sums.devices;
  if (all.allocations + sums.managed_allocations + all.out_of_memory == 0) return;
  const uint64_t pooled = all.allocations - sums.forwarded_allocations;
  out.print("cupool: {}: ", who());
  const bool managed_alone = all.allocations == 0 && sums.managed_allocations != 0;
  if (!managed_alone) write_count(out, all.allocations, "allocation");
  if (sums.forwarded_allocations != 0 && pooled != 0)
    out.print(", {} by the driver itself", sums.forwarded_allocations);
  if (sums.forwarded_allocations != 0 && pooled == 0) out.text(" by the driver itself");
  if (pooled != 0) write_reuse(out, all, pooled);
  if (!managed_alone && sums.managed_allocations != 0) out.text(", ");
  if (sums.managed_allocations != 0) write_managed(out, sums.managed_allocations, sums.forwarded_managed);
  out.text("; ");
  write_mode(out, facts.mode);
  out.text("\n");
  if (pooled != 0) {
    write_memory(out, all, count_devices());
    write_driver_calls(out, all);
  }
  if (all.spilled_allocations != 0) {
    out.text("cupool: ");
    write_count(out, all.spilled_allocations, "allocation");
    out.print(" of {} in all went to host memory (CUPOOL_SPILL), because {}; at most {} of it were taken\n",
              print_bytes(all.spilled_bytes), why_spilled(all), print_bytes(all.peak_host_reserved_bytes));
  }
  if (all.out_of_memory == 0) return;
  out.text("cupool: ");
  write_count(out, all.out_of_memory, "allocation");
  out.text(" failed: out of memory");
  if (all.too_large != 0) {
    out.text(", ");
    if (all.too_large != all.out_of_memory) out.print("{} of them ", all.too_large);
    out.text("for more than the device has");
  }
  out.text("\n");
}

void write_text(Writer& out, const Facts& facts, stats::Reading reading) {
  const stats::Sums sums = read_all(reading);
  out.print("cupool: {}, process {} on {}{}{}; ", facts.program, facts.pid, facts.host,
            *facts.rank != '\0' ? ", rank " : "", facts.rank);
  write_mode(out, facts.mode);
  out.text("\n");
  stats::visit(sums, [&](const stats::CounterInfo& info, uint64_t value) { write_counts(out, info, value); });
  out.print("cupool: {:<24} {:15.1f}%  1 - peak live / peak reserved\n", trusted("fragmentation"),
            sums.devices.fragmentation() * 100);
  write_sizes(out, sums.devices);
  for (int i = 0; i < stats::kMostDevices && count_devices() > 1; ++i) {
    if (!stats::device(i).is_used()) continue;
    const stats::DeviceSums device = read_device(i, reading);
    out.print("cupool: --- device {}, fragmentation {:.1f} %\n", i, device.fragmentation() * 100);
    stats::visit(device,
                 [&](const stats::CounterInfo& info, uint64_t value) { write_counts(out, info, value); });
    write_sizes(out, device);
  }
  write_charges(out);
  const config::Options plain = config::defaults();
  config::visit_changed(config::options(), plain, [&](const config::OptionInfo& info, const char* value) {
    out.print("cupool: {}={}\n", info.name, value);
  });
}

}  // namespace cupool::report
