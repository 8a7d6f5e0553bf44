// The report for programs: one JSON object on one line. Names of counters and options are keys, numbers are
// exact.

#include "base/version.hpp"
#include "config/options.hpp"
#include "config/print.hpp"
#include "report/forms.hpp"
#include "report/shortage.hpp"

namespace cupool::report {
namespace {

void write_sizes(Writer& out, const stats::DeviceSums& sums) {
  out.text(",\"sizes\":{");
  const char* separator = "";
  for (size_t i = 0; i < stats::kSizeBuckets; ++i) {
    if (sums.sizes[i] == 0) continue;
    out.print("{}\"{}\":{}", separator, uint64_t{1} << i, sums.sizes[i]);
    separator = ",";
  }
  out.text("}");
}

template <typename Sums>
void write_counts(Writer& out, const Sums& sums, const stats::DeviceSums& devices) {
  stats::visit(sums, [&](const stats::CounterInfo& info, uint64_t value) {
    out.print(",\"{}\":{}", info.name, value);
  });
  out.print(",\"fragmentation\":{:.4f}", devices.fragmentation());
  write_sizes(out, devices);
}

void write_field(Writer& out, const char* separator, const char* name, const char* value) {
  out.print("{}\"{}\":", separator, name);
  out.quoted(value);
}

}  // namespace

void write_json(Writer& out, const Facts& facts, stats::Reading reading) {
  write_field(out, "{", "cupool", kVersion);
  out.print(",\"pid\":{}", facts.pid);
  write_field(out, ",", "host", facts.host);
  write_field(out, ",", "rank", facts.rank);
  write_field(out, ",", "program", facts.program);
  write_field(out, ",", "instance", facts.instance);
  write_field(out, ",", "mode", facts.mode.name);
  write_field(out, ",", "mode_reason", facts.mode.reason);
  const stats::Sums sums = read_all(reading);
  write_counts(out, sums, sums.devices);
  out.text(",\"devices\":[");
  const char* separator = "";
  for (int i = 0; i < stats::kMostDevices; ++i) {
    if (!stats::device(i).is_used()) continue;
    const stats::DeviceSums device = read_device(i, reading);
    out.print("{}{{\"device\":{}", separator, i);
    write_counts(out, device, device);
    out.text("}");
    separator = ",";
  }
  out.text("],");
  write_last_shortage(out);
  out.text(",\"options\":{");
  separator = "";
  config::visit(config::options(), [&](const config::OptionInfo& info, const char* value) {
    write_field(out, separator, info.name, value);
    separator = ",";
  });
  out.text("}}\n");
}

}  // namespace cupool::report
