// What blocks lean on: for a block that was handed out before its old work was done, the stamp of that work.
// A copy of another context's stream waits for this alone; a newer hand-out of the block's own context may
// lean on work that waits for the copy. A fixed table of sets: what finds no place raises the stamp that
// every unknown block counts as leaning on, which is never too low. Under the timeline's lock; calls no
// driver.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "driver/driver.hpp"
#include "order/lane.hpp"

namespace cupool::order {

class LeantBlocks {
 public:
  // `completed`: the highest epoch whose work is done. Entries up to there give way without a trace.
  void add(driver::Address block, Epoch stamp, Epoch completed) {
    Set& set = sets_[index_of(block)];
    Leant* place = &set.ways[0];
    for (Leant& one : set.ways) {
      if (one.block == block) {
        one.stamp = std::max(one.stamp, stamp);
        return;
      }
      if (one.stamp < place->stamp) place = &one;
    }
    if (place->stamp > completed) set.floor = std::max(set.floor, place->stamp);
    *place = {block, stamp};
  }
  // Of an unknown block: the highest stamp that it may lean on.
  Epoch of(driver::Address block) const {
    const Set& set = sets_[index_of(block)];
    for (const Leant& one : set.ways) {
      if (one.block == block) return one.stamp;
    }
    return set.floor;
  }
  // Blocks that were not noted may lean on this.
  void raise_floor(Epoch stamp) {
    for (Set& set : sets_) set.floor = std::max(set.floor, stamp);
  }
  // In place: some threads have little stack.
  void clear() {
    for (Set& set : sets_) set = {};
  }

 private:
  struct Leant {
    driver::Address block = 0;
    Epoch stamp = 0;
  };
  static constexpr size_t kSets = 256;
  static constexpr size_t kWays = 4;
  struct Set {
    std::array<Leant, kWays> ways{};
    Epoch floor = 0;
  };

  // Blocks begin at multiples of 256 bytes, most of them at powers of two.
  static size_t index_of(driver::Address block) {
    return static_cast<size_t>((block >> 8) * 0x9e3779b97f4a7c15u >> 32) % kSets;
  }

  std::array<Set, kSets> sets_{};
};

}  // namespace cupool::order
