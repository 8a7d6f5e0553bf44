// See print.hpp.
#include "config/print.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"

namespace cupool::config {

void print_help(const Options& options) {
  const auto print_those = [&](bool expert) {
    visit(options, [&](const OptionInfo& info, const char* value) {
      if (info.expert != expert) return;
      char text[768];
      const size_t wanted =
          format(text, sizeof text, "%s=%.255s  (%s; default %s)\n    %s\n", info.name, value, info.type,
                 *info.fallback == '\0' ? "empty" : info.fallback, info.doc);
      log::raw(text, std::min(wanted, sizeof text - 1));
    });
  };
  print_those(false);
  log::raw(kExpertHeading, sizeof kExpertHeading - 1);
  log::raw("\n", 1);
  print_those(true);
}

}  // namespace cupool::config
