// `cupool options`: the table of options as text, as JSON, or as the page docs/options.md.
#include <cstdio>
#include <cstring>

#include "config/print.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

void print_text(const config::OptionInfo& info) {
  printf("%s=%s  (%s)\n", info.name, info.fallback, info.type);
  print_wrapped(info.doc, 4);
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

void print_markdown() {
  printf(
      "# Options\n\nMade by `cupool options --markdown`. Each is an environment variable. Sizes are written "
      "as `512`, "
      "`64K`, `1.5GiB`, `20%%` (of the device's memory) or `unlimited`. A value that makes no sense, a name "
      "that is none, "
      "and two options that contradict each other are each told in one line on stderr, and the program runs "
      "on.\n\n");
  printf("| variable | value | default | meaning |\n|---|---|---|---|\n");
  config::visit(config::defaults(), [](const config::OptionInfo& info, const char*) { print_row(info); });
}

void print_json() {
  const char* separator = "[";
  config::visit(config::defaults(), [&](const config::OptionInfo& info, const char*) {
    printf("%s{\"name\":%s,\"type\":%s,\"default\":%s,\"doc\":%s}", separator, quoted(info.name).c_str(),
           quoted(info.type).c_str(), quoted(info.fallback).c_str(), quoted(info.doc).c_str());
    separator = ",";
  });
  printf("]\n");
}

}  // namespace

int options(int count, char** arguments) {
  if (count == 0) {
    config::visit(config::defaults(), [](const config::OptionInfo& info, const char*) { print_text(info); });
    return 0;
  }
  if (count == 1 && strcmp(arguments[0], "--markdown") == 0) {
    print_markdown();
    return 0;
  }
  if (count == 1 && strcmp(arguments[0], "--json") == 0) {
    print_json();
    return 0;
  }
  fprintf(stderr, "cupool: options takes --json, --markdown or nothing\n");
  return kMisuse;
}

}  // namespace cupool::tools
