// See print.hpp.
#include "config/print.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/log.hpp"

namespace cupool::config {

void print_help(const Options& options) {
  visit(options, [](const OptionInfo& info, const char* value) {
    char told[256];
    snprintf(told, sizeof told, "%s", value);
    log::flatten(told, strlen(told));
    char text[768];
    const int wanted = snprintf(text, sizeof text, "%s=%s  (%s; default %s)\n    %s\n", info.name, told,
                                info.type, *info.fallback == '\0' ? "empty" : info.fallback, info.doc);
    log::raw(text, static_cast<size_t>(std::clamp(wanted, 0, static_cast<int>(sizeof text) - 1)));
  });
}

}  // namespace cupool::config
