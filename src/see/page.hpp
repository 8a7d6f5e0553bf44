// The page: one HTML file that holds all it shows, made from the template of page/ and the data of a picture.
// Everything of the trace is in the data, as base64: no text of it is ever HTML. In memory, then to a file.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "see/holders.hpp"
#include "see/model.hpp"
#include "see/moments.hpp"

namespace cupool::see {

// Writes to `file`; false: it could not be written.
bool write_page(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture,
                const std::vector<std::string>& sentences);

// The built template, with a mark where the data goes.
std::string_view page_template();

}  // namespace cupool::see
