// The output of --json: one object or list on one line of stdout, keys in the order in which they were
// written.
#pragma once

#include <nlohmann/json.hpp>

#include "base/say.hpp"

namespace cupool::tools {

using Answer = nlohmann::ordered_json;

inline void print(const Answer& answer) {
  // ASCII only; bytes of a path that are not UTF-8 become a replacement character.
  say("{}\n", answer.dump(-1, ' ', true, Answer::error_handler_t::replace));
}

}  // namespace cupool::tools
