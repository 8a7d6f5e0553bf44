// See print.hpp.
#include "config/print.hpp"

#include <algorithm>
#include <cstdio>

#include "base/log.hpp"

namespace cupool::config {

void print_help(const Options& options) {
  visit(options, [](const OptionInfo& info, const char* value) {
    char text[512];
    const int wanted = snprintf(text, sizeof text, "%s=%s  (%s; default %s)\n    %s\n", info.name, value,
                                info.type, *info.fallback == '\0' ? "empty" : info.fallback, info.doc);
    log::raw(text, static_cast<size_t>(std::clamp(wanted, 0, static_cast<int>(sizeof text) - 1)));
  });
}

}  // namespace cupool::config
