// Replays of programs under settings, each in a child process, several at a time: what the pool needs is
// found by the pool itself, and its state is the process's (replay/player.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replay/player.hpp"
#include "replay/program.hpp"
#include "tools/arguments.hpp"

namespace cupool::tools {

// Options as they stand in an environment: CUPOOL_NAME=value.
using Setting = std::vector<std::string>;

struct Replay {
  const replay::Program* program = nullptr;
  Setting setting;
  replay::Conditions conditions;
  // Not there: the child did not end well, and `error` says how.
  std::optional<replay::Figures> figures;
  std::string error;
};

// Plays all of them; after each, `ended` is called with the number that is done.
void play_all(std::vector<Replay>& replays, const std::function<void(size_t done)>& ended);

// "name=value,name=value" as a setting; none after an error message. An option that a replay cannot follow is
// refused.
std::optional<Setting> parse_setting(const std::string& text);
// "mapped segments" for people: the options without CUPOOL_, in lower case.
std::string describe(const Setting& setting);

struct NamedProgram {
  std::string name;  // the file's, without its folder
  replay::Program program;
  replay::Conditions conditions;
};
// Loads what the operands name, and takes --memory, --lag and --one-thread. None: after an error message, and
// `code` is the exit code.
std::vector<NamedProgram> load_programs(const Arguments& arguments, int* code, bool with_names = false);

}  // namespace cupool::tools
