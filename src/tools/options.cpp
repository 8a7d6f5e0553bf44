// `cupool options`: the table of options as text, as JSON, or as the page docs/options.md.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/say.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/launch.hpp"
#include "tools/table.hpp"
#include "tools/verbs.hpp"

namespace cupool::tools {
namespace {

// What people need first; docs and tests count on ten.
constexpr std::string_view kFirst[] = {
    "CUPOOL_BACKEND",    "CUPOOL_EXCEPT",   "CUPOOL_FREE",  "CUPOOL_LIMIT",      "CUPOOL_LOG",
    "CUPOOL_MAX_CACHED", "CUPOOL_DECAY_MS", "CUPOOL_STATS", "CUPOOL_STATS_FILE", "CUPOOL_CHECK"};

void print_text(const config::OptionInfo& info) {
  print_wrapped(std::string(info.name) + "=" + info.fallback + "  (" + info.type + ")", 0);
  print_wrapped(info.doc, 4);
}

// A choice of words has bars in it, which would end a cell.
void print_cell(const char* text) {
  for (; *text != '\0'; ++text) say("{}{}", *text == '|' ? "\\" : "", *text);
}

void print_row(const config::OptionInfo& info) {
  say("| `{}` | ", info.name);
  print_cell(info.type);
  say(" | {} | {} |\n", *info.fallback == '\0' ? "" : info.fallback, info.doc);
}

void print_markdown() {
  say("# Options\n\nMade by `cupool options --markdown`. Each is an environment variable. Sizes are written "
      "as `512`, "
      "`64K`, `1.5GiB`, `20%` (of the device's memory) or `unlimited`. A value that makes no sense, a name "
      "that is none, "
      "and two options that contradict each other are each told in one line on stderr, and the program runs "
      "on.\n\n");
  say("| variable | value | default | meaning |\n|---|---|---|---|\n");
  config::visit(config::defaults(), [](const config::OptionInfo& info, const char*) { print_row(info); });
}

void print_json() {
  const char* separator = "[";
  config::visit(config::defaults(), [&](const config::OptionInfo& info, const char*) {
    say("{}{{\"name\":{},\"type\":{},\"default\":{},\"doc\":{}}}", separator, quoted(info.name),
        quoted(info.type), quoted(info.fallback), quoted(info.doc));
    separator = ",";
  });
  say("]\n");
}

void print_all() {
  config::visit(config::defaults(), [](const config::OptionInfo& info, const char*) { print_text(info); });
}

void print_first() {
  size_t others = 0;
  config::visit(config::defaults(), [&](const config::OptionInfo& info, const char*) {
    if (std::find(std::begin(kFirst), std::end(kFirst), info.name) == std::end(kFirst)) {
      ++others;
    } else {
      print_text(info);
    }
  });
  say("{} more: cupool options --all\n", others);
}

int print_one(const char* word) {
  const std::string name = option_name(word);
  bool found = false;
  config::visit(config::defaults(), [&](const config::OptionInfo& info, const char*) {
    if (name != info.name) return;
    print_text(info);
    found = true;
  });
  if (found) return 0;
  const char* const near = config::nearest_name(name);
  const std::string hint =
      near == nullptr ? "cupool options --all lists them" : std::string("did you mean ") + near + "?";
  say(stderr, "cupool: {} is not an option; {}\n", name, hint);
  return kMisuse;
}

}  // namespace

int options(int count, char** arguments) {
  if (count == 0) print_first();
  int code = 0;
  for (int i = 0; i < count; ++i) {
    const std::string_view word(arguments[i]);
    if (word == "--all") {
      print_all();
    } else if (word == "--markdown") {
      print_markdown();
    } else if (word == "--json") {
      print_json();
    } else if (word.starts_with("-")) {
      return refuse_flag("options", word);
    } else {
      code = std::max(code, print_one(arguments[i]));
    }
  }
  return code;
}

}  // namespace cupool::tools
