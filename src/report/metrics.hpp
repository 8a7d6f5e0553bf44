// Figures as OpenMetrics text, which Prometheus' textfile collector reads too: for CUPOOL_METRICS_FILE and
// `cupool top --openmetrics`. Allocates nothing; async-signal-safe.
#pragma once

#include <cstddef>

#include "neighbours/registry.hpp"
#include "report/writer.hpp"

namespace cupool::report {

// With the closing # EOF. `users`: whose each entry is, for a label; null: all are this process's own.
void write_metrics(Writer& out, const neighbours::Entry* entries, size_t count,
                   const char* const* users = nullptr);

// "GPU-5c5c5c5c-...", as nvidia-smi prints it.
struct UuidText {
  char text[48];
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text and prints as one
  operator std::string_view() const { return text; }
};
UuidText print_uuid(const neighbours::DeviceId& id);

// The share of allocations that were served from the pool; 0 if there were none.
// False: there was no allocation of which it is known.
bool is_reuse_known(const neighbours::Figures& figures);
double reused_ratio(const neighbours::Figures& figures);

}  // namespace cupool::report
