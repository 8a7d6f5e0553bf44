// See name.hpp.
#include "neighbours/name.hpp"

#include <charconv>

#include "base/format.hpp"

namespace cupool::neighbours {

size_t write_name(uint32_t user, char* out, size_t room) {
  return format_into({out, room}, "cupool-{}-{}", user, kLayout);
}

bool parse_name(std::string_view name, uint32_t* user) {
  constexpr std::string_view kPrefix = "cupool-";
  if (!name.starts_with(kPrefix)) return false;
  const std::string_view rest = name.substr(kPrefix.size());
  uint32_t number = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec != std::errc()) return false;
  // The rest must follow, and the number have no leading zeros.
  char only[32];
  if (name != std::string_view(only, write_name(number, only, sizeof only))) return false;
  *user = number;
  return true;
}

}  // namespace cupool::neighbours
