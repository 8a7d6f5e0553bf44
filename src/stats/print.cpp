// See print.hpp. No allocation: this runs at exit.
#include "stats/print.hpp"

#include <cinttypes>
#include <cstdio>

namespace cupool::stats {

void print_text(const Sums& sums, Sink sink, void* target) {
  visit(sums, [&](const CounterInfo& info, uint64_t value) {
    if (value == 0) return;
    char text[256];
    const int size = snprintf(text, sizeof text, "cupool: %-24s %12" PRIu64 "  %s\n", info.name, value, info.doc);
    sink(target, text, static_cast<unsigned long>(size));
  });
}

void print_json(const Sums& sums, Sink sink, void* target) {
  char text[128];
  const char* separator = "{";
  visit(sums, [&](const CounterInfo& info, uint64_t value) {
    const int size = snprintf(text, sizeof text, "%s\"%s\":%" PRIu64, separator, info.name, value);
    sink(target, text, static_cast<unsigned long>(size));
    separator = ",";
  });
  sink(target, "}\n", 2);
}

}  // namespace cupool::stats
