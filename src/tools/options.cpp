// `cupool options`: the table of options as text, or as the page docs/options.md.
#include <cstdio>
#include <cstring>

#include "config/print.hpp"
#include "tools/commands.hpp"

namespace cupool::tools {
namespace {

void print_text(const config::OptionInfo& info) {
  printf("%s=%s\n    %s. %s\n", info.name, info.fallback, info.type, info.doc);
}

// A choice of words has bars in it, which would end a cell.
void print_cell(const char* text) {
  for (; *text != '\0'; ++text) printf(*text == '|' ? "\\|" : "%c", *text);
}

void print_row(const config::OptionInfo& info) {
  printf("| `%s` | ", info.name);
  print_cell(info.type);
  printf(" | %s | %s |\n", *info.fallback == '\0' ? "" : info.fallback, info.doc);
}

}  // namespace

int options(int count, char** arguments) {
  if (count > 1 || (count == 1 && strcmp(arguments[0], "--markdown") != 0)) {
    fprintf(stderr, "cupool: options takes --markdown or nothing\n");
    return kMisuse;
  }
  if (count == 0) {
    config::visit(config::defaults(), [](const config::OptionInfo& info, const char*) { print_text(info); });
    return 0;
  }
  printf(
      "# Options\n\nMade by `cupool options --markdown`. Each is an environment variable. Sizes are written "
      "as `512`, "
      "`64K`, `1.5GiB`, `20%%` (of the device's memory) or `unlimited`.\n\n");
  printf("| variable | value | default | meaning |\n|---|---|---|---|\n");
  config::visit(config::defaults(), [](const config::OptionInfo& info, const char*) { print_row(info); });
  return 0;
}

}  // namespace cupool::tools
