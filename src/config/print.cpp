// See print.hpp.
#include "config/print.hpp"

#include "base/format.hpp"
#include "base/log.hpp"

namespace cupool::config {

void print_help(const Options& options) {
  const auto print_those = [&](bool expert) {
    visit(options, [&](const OptionInfo& info, const char* value) {
      if (info.expert != expert) return;
      char text[768];
      const size_t size = format_into(text, "{}={}  ({}; default {})\n    {}\n", info.name, first(value, 255),
                                      info.type, *info.fallback == '\0' ? "empty" : info.fallback, info.doc);
      log::raw(text, size);
    });
  };
  print_those(false);
  log::raw(kExpertHeading, sizeof kExpertHeading - 1);
  log::raw("\n", 1);
  print_those(true);
}

}  // namespace cupool::config
