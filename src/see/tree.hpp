// Call stacks as trees: what they have in common at their outer end is one branch, or at their inner end, or
// of their libraries alone. A node's parent comes before it. In memory only; pure functions of the holders.
#pragma once

#include <cstdint>
#include <vector>

#include "see/holders.hpp"

namespace cupool::see {

struct Tree {
  std::vector<uint32_t> parents;  // of each node; kNone: it is a root
  std::vector<uint32_t> labels;   // a frame's number, or a library's
  std::vector<uint32_t> leaves;   // of each holder, the node where its stack ends
};

// `inverted`: from where the memory was asked for outwards.
Tree tree_of_frames(const Holders& holders, bool inverted);
// The outermost first; frames of one library that follow each other are one node.
Tree tree_of_libraries(const Holders& holders, std::vector<std::string>* libraries);

}  // namespace cupool::see
