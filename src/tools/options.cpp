// `cupool options`: the table of options as text, as JSON, or as the page docs/options.md.
#include <algorithm>
#include <cstdio>
#include <string>

#include "base/say.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"
#include "tools/commands.hpp"
#include "tools/json.hpp"
#include "tools/launch.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

// Calls f(OptionInfo) for the ordinary options, or for those that experts need.
template <typename F>
void visit_those(bool expert, F&& f) {
  config::visit(config::defaults(), [&](const config::OptionInfo& info, const char*) {
    if (info.expert == expert) f(info);
  });
}

void print_text(const config::OptionInfo& info) {
  print_wrapped(std::string(info.name) + "=" + info.fallback + "  (" + info.type + ")", 0);
  print_wrapped(info.doc, 4);
}

// Choices contain bars, which would end a cell of the table.
void print_cell(const char* text) {
  for (; *text != '\0'; ++text) say("{}{}", *text == '|' ? "\\" : "", *text);
}

void print_row(const config::OptionInfo& info) {
  say("| `{}` | ", info.name);
  print_cell(info.type);
  say(" | {} | {} |\n", *info.fallback == '\0' ? "" : info.fallback, info.doc);
}

void print_markdown() {
  say("# Options\n\nFor people who set cupool's options. Made by `cupool options --markdown`. Each is an "
      "environment variable. Sizes are written "
      "as `512`, "
      "`64K`, `1.5GiB`, `20%` (of the device's memory) or `unlimited`. Invalid values, unknown names and "
      "conflicting options each print one warning on stderr; the program continues.\n\n");
  for (const bool expert : {false, true}) {
    if (expert) say("\n## For experts\n\nRarely needed, and more likely to change.\n\n");
    say("| variable | value | default | meaning |\n|---|---|---|---|\n");
    visit_those(expert, print_row);
  }
}

void print_json() {
  Answer all = Answer::array();
  config::visit(config::defaults(), [&](const config::OptionInfo& info, const char*) {
    all.push_back({{"name", info.name},
                   {"type", info.type},
                   {"default", info.fallback},
                   {"doc", info.doc},
                   {"expert", info.expert}});
  });
  print(all);
}

void print_ordinary() {
  size_t others = 0;
  visit_those(false, print_text);
  visit_those(true, [&](const config::OptionInfo&) { ++others; });
  say("{} more for experts: cupool options --all\n", others);
}

void print_all() {
  visit_those(false, print_text);
  say("\n");
  print_wrapped(config::kExpertHeading, 0);
  visit_those(true, print_text);
}

int print_one(const std::string& word) {
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
  say(stderr, "cupool: unknown option {}; {}\n", name, hint);
  return kMisuse;
}

}  // namespace

int options(const Arguments& arguments) {
  if (arguments.flags.empty() && arguments.operands.empty()) print_ordinary();
  if (arguments.has("--all")) print_all();
  if (arguments.has("--markdown")) print_markdown();
  if (arguments.has("--json")) print_json();
  int code = 0;
  for (const std::string& word : arguments.operands) code = std::max(code, print_one(word));
  return code;
}

}  // namespace cupool::tools
