// See metrics.hpp. All samples of one metric stand together, as the format demands.
#include "report/metrics.hpp"

#include <cstring>

namespace cupool::report {
namespace {

using neighbours::Entry;
using neighbours::Figures;

constexpr uint64_t kNever = kUnlimited - 1;

struct Metric {
  const char* name;
  const char* unit;
  const char* suffix;  // of samples: counters have _total
  const char* help;
  uint64_t Figures::*value;
  uint64_t unknown = kNever;  // a value without a sample: no number would be true
};

constexpr Metric kMetrics[] = {
    {"cupool_live_bytes", "bytes", "", "Device memory that the program holds.", &Figures::live},
    {"cupool_cached_bytes", "bytes", "", "Device memory that is kept for reuse.", &Figures::cached},
    {"cupool_reserved_bytes", "bytes", "", "Device memory taken from the driver.", &Figures::reserved},
    {"cupool_peak_reserved_bytes", "bytes", "", "The most of it at once.", &Figures::peak},
    {"cupool_reused", "", "_total", "Allocations whose memory another block had had.", &Figures::reused},
    {"cupool_first_uses", "", "_total", "Allocations with memory that no block had had.",
     &Figures::first_uses},
    {"cupool_waits_avoided", "", "_total", "Frees that did not wait for pending work.",
     &Figures::waits_avoided},
    {"cupool_host_bytes", "bytes", "", "Host memory taken for blocks that spilled.", &Figures::host},
    {"cupool_capacity_bytes", "bytes", "", "Memory of the device.", &Figures::capacity, 0},
    {"cupool_limit_bytes", "bytes", "", "CUPOOL_LIMIT: the most device memory to take.", &Figures::limit,
     kUnlimited},
};

void write_head(Writer& out, const char* name, const char* type, const char* unit, const char* help) {
  out.print("# TYPE {} {}\n", name, type);
  if (*unit != '\0') out.print("# UNIT {} {}\n", name, unit);
  out.print("# HELP {} {}\n", name, help);
}

void write_escaped(Writer& out, const char* text) {
  for (const char* at = text; *at != '\0'; ++at) {
    if (*at == '"' || *at == '\\') out.text("\\");
    out.text(*at == '\n' ? std::string_view("\\n") : std::string_view(at, 1));
  }
}

void write_labels(Writer& out, const Entry& entry, const char* user) {
  out.print("{{pid=\"{}\",", entry.pid);
  // Two containers number their processes alike.
  if (!entry.same_namespace) out.print("pid_namespace=\"{}\",", entry.pid_namespace);
  if (user != nullptr) {
    out.text("user=\"");
    write_escaped(out, user);
    out.text("\",");
  }
  out.text("program=\"");
  write_escaped(out, entry.program);
  out.print("\",device=\"{}\",uuid=\"{}\"}}", entry.figures.ordinal, print_uuid(entry.figures.device));
}

}  // namespace

UuidText print_uuid(const neighbours::DeviceId& id) {
  UuidText out{};
  size_t used = format_into(out.text, "GPU-");
  for (size_t i = 0; i < sizeof id.bytes; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    used += format_into({out.text + used, sizeof out.text - used}, "{}{:02x}", trusted(dash ? "-" : ""),
                        id.bytes[i]);
  }
  return out;
}

bool is_reuse_known(const Figures& figures) { return figures.reused != 0 || figures.first_uses != 0; }

double reused_ratio(const Figures& figures) {
  const auto reused = static_cast<double>(figures.reused);
  const double all = reused + static_cast<double>(figures.first_uses);
  return all > 0 ? reused / all : 0;
}

void write_metrics(Writer& out, const Entry* entries, size_t count, const char* const* users) {
  const auto user_of = [&](size_t i) { return users == nullptr ? nullptr : users[i]; };
  for (const Metric& metric : kMetrics) {
    write_head(out, metric.name, *metric.suffix == '\0' ? "gauge" : "counter", metric.unit, metric.help);
    for (size_t i = 0; i < count; ++i) {
      if (entries[i].figures.*metric.value == metric.unknown) continue;
      out.print("{}{}", metric.name, metric.suffix);
      write_labels(out, entries[i], user_of(i));
      out.print(" {}\n", entries[i].figures.*metric.value);
    }
  }
  write_head(out, "cupool_reused_ratio", "gauge", "ratio",
             "The share of allocations whose memory another block had had.");
  for (size_t i = 0; i < count; ++i) {
    if (!is_reuse_known(entries[i].figures)) continue;
    out.text("cupool_reused_ratio");
    write_labels(out, entries[i], user_of(i));
    out.print(" {:.6f}\n", reused_ratio(entries[i].figures));
  }
  out.text("# EOF\n");
}

}  // namespace cupool::report
