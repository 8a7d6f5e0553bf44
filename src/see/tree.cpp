// See tree.hpp.
#include "see/tree.hpp"

#include <algorithm>
#include <unordered_map>

namespace cupool::see {
namespace {

class Grower {
 public:
  // Ends at the node of the last label.
  void add(const std::vector<uint32_t>& labels) {
    uint32_t node = kNone;
    for (const uint32_t label : labels) {
      const uint64_t key = uint64_t{node} << 32 | label;
      const auto [at, is_new] = nodes_.try_emplace(key, static_cast<uint32_t>(tree_.parents.size()));
      if (is_new) {
        tree_.parents.push_back(node);
        tree_.labels.push_back(label);
      }
      node = at->second;
    }
    tree_.leaves.push_back(node);
  }
  Tree take() { return std::move(tree_); }

 private:
  Tree tree_;
  std::unordered_map<uint64_t, uint32_t> nodes_;
};

}  // namespace

Tree tree_of_frames(const Holders& holders, bool inverted) {
  Grower grower;
  for (uint32_t i = 0; i < holders.size(); ++i) {
    std::vector<uint32_t> labels = holders.frames(i);
    if (inverted) std::reverse(labels.begin(), labels.end());
    grower.add(labels);
  }
  return grower.take();
}

Tree tree_of_libraries(const Holders& holders, std::vector<std::string>* libraries) {
  std::unordered_map<std::string, uint32_t> numbers;
  std::vector<uint32_t> of_frame;
  for (const Frame& frame : holders.table()) {
    const auto [at, is_new] = numbers.try_emplace(frame.library, static_cast<uint32_t>(libraries->size()));
    if (is_new) libraries->push_back(frame.library);
    of_frame.push_back(at->second);
  }
  Grower grower;
  for (uint32_t i = 0; i < holders.size(); ++i) {
    std::vector<uint32_t> labels;
    for (const uint32_t frame : holders.frames(i)) {
      if (labels.empty() || labels.back() != of_frame[frame]) labels.push_back(of_frame[frame]);
    }
    grower.add(labels);
  }
  return grower.take();
}

}  // namespace cupool::see
