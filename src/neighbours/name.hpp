// The name of a user's registry: one spelling for each user, so that nobody has two. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cupool::neighbours {

inline constexpr uint32_t kLayout = 1;  // part of the name: versions that differ do not meet

// The length, as with format_into. `user`: as outer_user() numbers it.
size_t write_name(uint32_t user, char* out, size_t room);
// Whose registry has this name; false: nobody's.
bool parse_name(std::string_view name, uint32_t* user);

}  // namespace cupool::neighbours
