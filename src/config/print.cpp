// See print.hpp.
#include "config/print.hpp"

#include "base/format.hpp"
#include "base/log.hpp"

namespace cupool::config {

void print_help(const Options& options) {
  visit(options, [](const OptionInfo& info, const char* value) {
    char text[768];
    const size_t size = format_into(text, "{}={}  ({}; default {})\n    {}\n", info.name, first(value, 255),
                                    info.type, *info.fallback == '\0' ? "empty" : info.fallback, info.doc);
    log::raw(text, size);
  });
}

}  // namespace cupool::config
