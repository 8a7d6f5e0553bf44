// See print.hpp.
#include "config/print.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"

namespace cupool::config {

void print_help(const Options& options) {
  visit(options, [](const OptionInfo& info, const char* value) {
    char text[768];
    const size_t wanted = format(text, sizeof text, "%s=%.255s  (%s; default %s)\n    %s\n", info.name, value,
                                 info.type, *info.fallback == '\0' ? "empty" : info.fallback, info.doc);
    log::raw(text, std::min(wanted, sizeof text - 1));
  });
}

}  // namespace cupool::config
