// What a trace shows, in sentences, for the page and the terminal. Each is computed from the trace and holds
// for any program: nothing is said that the trace does not tell. In memory only.
#pragma once

#include <string>
#include <vector>

#include "see/holders.hpp"
#include "see/model.hpp"
#include "see/moments.hpp"

namespace cupool::see {

// What holders did over all of a trace, and held at its peak.
struct HolderSums {
  uint64_t held_bytes = 0;  // at the moment of the most memory on all devices
  uint64_t held_blocks = 0;
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint64_t brief = 0;
  uint64_t left_bytes = 0;  // when the trace ended
  uint64_t left_blocks = 0;
};
// By the number of a holder. Device memory alone.
std::vector<HolderSums> sums_of(const Model& model, const Holders& holders, const Picture& picture);
// The same by the frames that stand for them, numbers of Holders::table().
std::vector<HolderSums> sums_of_faces(const Model& model, const Holders& holders, const Picture& picture);

std::vector<std::string> findings(const Model& model, const Holders& holders, const Picture& picture);

std::string print_seconds(uint64_t ns);
std::string print_count(uint64_t count);

}  // namespace cupool::see
