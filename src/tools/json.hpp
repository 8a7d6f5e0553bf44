// What the command answers with --json: one object or list on one line of stdout, its names in the order in
// which they were written.
#pragma once

#include <nlohmann/json.hpp>

#include "base/say.hpp"

namespace cupool::tools {

using Answer = nlohmann::ordered_json;

inline void print(const Answer& answer) {
  // In ASCII alone; bytes of a path that are no UTF-8 become a replacement character.
  say("{}\n", answer.dump(-1, ' ', true, Answer::error_handler_t::replace));
}

}  // namespace cupool::tools
