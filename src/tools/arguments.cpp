// See arguments.hpp. A verb is an App of its own rather than a subcommand: CLI11 hands a subcommand's "--" up
// to its parent, which would read the flags of the user's program as ours. CLI11's own messages are not
// shown: they say what happened, but not what to do.
#include "tools/arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/verbs.hpp"

namespace cupool::tools {
namespace {

void add_flag(CLI::App* app, const Flag& flag, Arguments* out) {
  const auto note = [out, name = flag.name](std::string value) {
    out->flags.emplace_back(name, std::move(value));
  };
  if (*flag.value == '\0') {
    app->add_flag_callback(flag.name, [note] { note(""); })->trigger_on_parse()->disable_flag_override();
  } else {
    app->add_option_function<std::string>(flag.name, note)->trigger_on_parse();
  }
}

// A flag without the value that it needs, or with one where it takes none.
int refuse_use(const Verb& verb, std::string_view complaint) {
  const std::string_view plain =
      complaint.substr(std::min(complaint.size(), complaint.find_first_not_of('-')));
  for (const Flag& flag : verb.flags) {
    const std::string_view name(flag.name);
    if (!plain.starts_with(name.substr(name.find_first_not_of('-')))) continue;
    if (*flag.value == '\0') {
      say(stderr, "cupool: {} takes no value; cupool {} -h explains it\n", flag.name, verb.name);
    } else {
      say(stderr, "cupool: {} needs a value, {}: {}\n", flag.name, flag.value, flag.doc);
    }
    return kMisuse;
  }
  say(stderr, "cupool: {}; cupool {} -h explains it\n", complaint, verb.name);
  return kMisuse;
}

}  // namespace

bool Arguments::has(std::string_view flag) const {
  return std::any_of(flags.begin(), flags.end(), [&](const auto& one) { return one.first == flag; });
}

std::vector<std::string> Arguments::values(std::string_view flag) const {
  std::vector<std::string> out;
  for (const auto& [name, value] : flags) {
    if (name == flag) out.push_back(value);
  }
  return out;
}

std::string Arguments::value(std::string_view flag) const {
  const std::vector<std::string> all = values(flag);
  return all.empty() ? "" : all.back();
}

std::optional<Arguments> parse(const Verb& verb, std::vector<std::string> words, int* code) {
  Arguments out;
  CLI::App app;
  app.allow_extras();
  app.prefix_command(verb.runs_program);
  for (const Flag& flag : verb.flags) add_flag(&app, flag, &out);
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    print_help(verb);
    *code = 0;
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    *code = refuse_use(verb, error.what());
    return std::nullopt;
  }
  out.operands = app.remaining();
  for (auto word = out.operands.begin(); word != out.operands.end(); ++word) {
    if (*word == "--") {
      out.operands.erase(word);
      break;
    }
    if (word->size() > 1 && word->starts_with('-')) {
      *code = refuse_flag(verb, *word);
      return std::nullopt;
    }
    if (verb.runs_program) break;
  }
  return out;
}

}  // namespace cupool::tools
