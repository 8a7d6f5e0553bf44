// See shortage.hpp. In one write, so that the reports of several ranks do not mix; the host's memory may be
// short too, so nothing is allocated.
#include "report/shortage.hpp"

#include <unistd.h>

#include <atomic>
#include <cinttypes>

#include "base/bytes.hpp"
#include "config/options.hpp"
#include "report/writer.hpp"

namespace cupool::report {
namespace {

constinit std::atomic<uint64_t> written{0};

void write_reasons(Writer& out, const Shortage& s) {
  const char* separator = "";
  out.text("cupool:   not given back: ");
  if (s.free_in_shared != 0) {
    out.print("%s free in %" PRIu64 " segments that also hold live blocks",
              print_bytes(s.free_in_shared).text, s.shared_segments);
    separator = "; ";
  }
  if (s.free_segments != 0) {
    out.print("%s%s in %" PRIu64 " free segments, because %s", separator,
              print_bytes(s.free_segment_bytes).text, s.free_segments,
              s.capturing ? "a stream captures" : "the driver would not take them");
    separator = "; ";
  }
  if (s.tainted != 0) {
    out.print("%s%s in segments whose blocks were shared outside the process", separator,
              print_bytes(s.tainted).text);
    separator = "; ";
  }
  out.print("%s\n", *separator == '\0' ? "nothing, all that was free went back" : "");
}

void write_table(Writer& out, const Shortage& s) {
  if (s.live != 0 && s.rows == decltype(s.rows){})
    return;  // the driver's own pool tells nothing of its blocks
  out.text("cupool:   size up to       blocks          live          free\n");
  for (size_t i = 0; i < s.rows.size(); ++i) {
    const Shortage::Row& row = s.rows[i];
    if (row.live == 0 && row.free == 0) continue;
    out.print("cupool:   %-12s %10" PRIu64 " %13s %13s\n", print_bytes(uint64_t{1} << i).text, row.blocks,
              print_bytes(row.live).text, print_bytes(row.free).text);
  }
}

}  // namespace

bool shortage_is_due() {
  const config::Options& options = config::options();
  return written.load(std::memory_order_relaxed) < options.oom_reports &&
         written.fetch_add(1, std::memory_order_relaxed) < options.oom_reports;
}

void write_shortage(const Shortage& s) {
  char buffer[8192];
  Writer out(STDERR_FILENO, buffer, sizeof buffer);
  const uint64_t cached = s.reserved > s.live ? s.reserved - s.live : 0;
  out.print("cupool: out of memory on device %d: %s %sasked; the device has %s free of %s\n", s.device,
            print_bytes(s.asked).text, s.managed ? "of managed memory " : "", print_bytes(s.device_free).text,
            print_bytes(s.device_total).text);
  out.print("cupool:   reserved %s: live %s, cached %s (fragmentation %.0f %%); largest free range %s\n",
            print_bytes(s.reserved).text, print_bytes(s.live).text, print_bytes(cached).text,
            s.reserved == 0 ? 0.0 : 100.0 * static_cast<double>(cached) / static_cast<double>(s.reserved),
            print_bytes(s.largest_free).text);
  if (s.limit < s.device_total && s.reserved + s.asked > s.limit) {
    out.print("cupool:   %s allows %s\n", s.limit_name, print_bytes(s.limit).text);
  }
  write_reasons(out, s);
  write_table(out, s);
  out.flush();
}

}  // namespace cupool::report
