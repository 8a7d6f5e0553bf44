// Puts a program together while a file is read: names of blocks, threads and streams become numbers, and what
// was held before the record began comes first.
#pragma once

#include <string>
#include <unordered_map>

#include "replay/program.hpp"

namespace cupool::replay {

// More than any device has; a file that says so is damaged.
inline constexpr uint64_t kMostAsked = uint64_t{1} << 46;

class Builder {
 public:
  // False: the block is held already, or no block can be so large.
  bool allocate(uint64_t name, uint64_t bytes, Step step, uint32_t stack = 0);
  // How the block that was allocated last was served in the record.
  void note_served(uint8_t how);
  // False: it is not held.
  bool free(uint64_t name, Step step);
  // The block was held when the record began.
  void held_before(uint64_t name, uint64_t bytes, Step step, uint32_t stack = 0);
  bool is_held(uint64_t name) const { return held_.count(name) != 0; }
  bool holds_any() const { return !held_.empty(); }
  // pre: it is held.
  uint8_t place_of(uint64_t name) const { return held_.at(name).place; }
  // The context has ended, and the memory in it.
  void forget(uint8_t place) {
    std::erase_if(held_, [&](const auto& one) { return one.second.place == place; });
  }
  void other(const Step& step) { program_.steps.push_back(step); }

  // Threads beyond the most that are played share numbers.
  uint16_t thread(uint64_t name);
  // It has ended, and no other has its number: from now on a new one may.
  void end_thread(uint64_t name, Step step);
  // A lane of its own for each stream of a file that has no handles.
  static uint64_t lane(uint64_t stream) { return (stream + 1) << 12; }
  size_t steps() const { return program_.steps.size(); }
  Program& program() { return program_; }
  Program finish();

 private:
  uint32_t add_block(uint32_t stack);

  Program program_;
  std::vector<Step> before_;
  struct Held {
    uint32_t block;
    uint8_t place;
  };
  std::unordered_map<uint64_t, Held> held_;
  std::unordered_map<uint64_t, uint16_t> threads_;
  std::vector<uint32_t> sharing_;  // how many threads have each number
  std::vector<uint16_t> left_;     // numbers that nobody has any more
};

}  // namespace cupool::replay
