// The essence of a report for a terminal, with bars.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "see/holders.hpp"
#include "see/model.hpp"
#include "see/moments.hpp"

namespace cupool::see {

void print_text(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture,
                const std::vector<std::string>& sentences);

}  // namespace cupool::see
