// `cupool options`: the table of options as text, as JSON, or as the page docs/options.md; and one of them as
// a program started here would have it.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "config/parse.hpp"
#include "config/print.hpp"
#include "config/process.hpp"
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

// What a program would be told of the environment; of one option those that name it.
std::vector<std::string> complaints;
void keep_complaint(const char* sentence) { complaints.emplace_back(sentence); }

// The options that a program started here would have.
const config::Options& present() {
  static const config::Options read = config::read_environment(config::environment(), keep_complaint);
  return read;
}

bool is_named_in(const std::string& sentence, const config::OptionInfo& info) {
  const size_t at = sentence.find(info.name);
  const char after =
      at == std::string::npos ? 'A' : sentence.c_str()[at + std::string_view(info.name).size()];
  return after != '_' && (after < 'A' || after > 'Z');
}

// A value that was refused has no part in what is in force.
bool is_from_environment(const config::OptionInfo& info, const char* value) {
  if (config::variable(info.name) == nullptr) return false;
  const bool has_complaint = std::any_of(complaints.begin(), complaints.end(),
                                         [&](const std::string& one) { return is_named_in(one, info); });
  return !has_complaint || std::string_view(value) != info.fallback;
}

void print_json() {
  Answer all = Answer::array();
  config::visit(present(), [&](const config::OptionInfo& info, const char* value) {
    all.push_back({{"name", info.name},
                   {"type", info.type},
                   {"value", value},
                   {"source", is_from_environment(info, value) ? "environment" : "default"},
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

// What may be written behind the equals sign.
std::string syntax_of(const config::OptionInfo& info) {
  const std::string type = info.type;
  if (type == "number") return make_text("a whole number from {} to {}", info.low, info.high);
  if (type == "text") return "any text";
  if (type == "yes|no") return "yes or no (also 1, on, true, y; 0, off, false, n)";
  if (type != "size") return "one of " + type;
  std::string out = "a size: 512, 64K, 1.5GiB, 20% (of the device's memory) or unlimited";
  const std::string low = config::print(Size{info.low, false}).text;
  if (info.high != kUnlimited)
    return out + "; from " + low + " to " + config::print(Size{info.high, false}).text;
  return info.low == 0 ? out : out + "; at least " + low;
}

void print_present(const config::OptionInfo& info, const char* value) {
  const std::string fallback = *info.fallback == '\0' ? "empty" : info.fallback;
  print_wrapped(std::string(info.name) + "=" + printable(value), 0);
  print_wrapped(is_from_environment(info, value)         ? "from the environment; the default is " + fallback
                : config::variable(info.name) != nullptr ? "the default; the environment's value is refused"
                                                         : "the default; the environment does not set it",
                4);
  for (const std::string& sentence : complaints) {
    if (is_named_in(sentence, info)) print_wrapped(printable(sentence), 4);
  }
  print_wrapped("syntax: " + syntax_of(info), 4);
  print_wrapped(info.doc, 4);
}

int print_one(const std::string& word) {
  const std::string name = option_name(word);
  bool found = false;
  config::visit(present(), [&](const config::OptionInfo& info, const char* value) {
    if (name != info.name) return;
    print_present(info, value);
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
  if (!arguments.flags.empty() && !arguments.operands.empty()) {
    say(stderr, "cupool: {} lists all options; without it, {} is shown\n", arguments.flags[0].first,
        printable(arguments.operands[0]));
    return kMisuse;
  }
  if (arguments.flags.empty() && arguments.operands.empty()) print_ordinary();
  if (arguments.has("--all")) print_all();
  if (arguments.has("--markdown")) print_markdown();
  if (arguments.has("--json")) print_json();
  int code = 0;
  for (const std::string& word : arguments.operands) code = std::max(code, print_one(word));
  return code;
}

}  // namespace cupool::tools
