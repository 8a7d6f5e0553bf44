// The arguments behind a verb, as CLI11 reads them by the verb's row in the table: flags in the order in
// which they came, then operands. The first operand of a verb that runs a program begins that program's
// command line, which is not parsed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cupool::tools {

struct Verb;

struct Arguments {
  std::vector<std::pair<std::string, std::string>> flags;  // "--set", "limit=1G"; no value: empty
  std::vector<std::string> operands;

  bool has(std::string_view flag) const;
  // The last value given with a flag; empty: none was.
  std::string value(std::string_view flag) const;
  std::vector<std::string> values(std::string_view flag) const;
};

// None: help was requested or the line is invalid; the answer has been printed, and `code` is the exit code.
std::optional<Arguments> parse(const Verb& verb, std::vector<std::string> words, int* code);

}  // namespace cupool::tools
