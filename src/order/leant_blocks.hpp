// What blocks lean on: for a block that was handed out before its old work was done, the stamp of that work.
// A copy of another context's stream waits for this alone; a newer hand-out of the block's own context may
// lean on work that waits for the copy. A table of sets that grows with the blocks that lean at once, to tens
// of thousands: what finds no place then raises the stamp that every unknown block counts as leaning on,
// which is never too low. Under the timeline's lock; calls no driver.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/pages.hpp"
#include "driver/driver.hpp"
#include "order/lane.hpp"

namespace cupool::order {

class LeantBlocks {
 public:
  LeantBlocks() = default;
  ~LeantBlocks() { drop_more(); }
  LeantBlocks(const LeantBlocks&) = delete;
  LeantBlocks& operator=(const LeantBlocks&) = delete;

  // `completed`: the highest epoch whose work is done. Entries up to there give way without a trace.
  void add(driver::Address block, Epoch stamp, Epoch completed) {
    for (;;) {
      Set& set = set_of(block);
      Leant* place = &set.ways[0];
      for (Leant& one : set.ways) {
        if (one.block == block) {
          one.stamp = std::max(one.stamp, stamp);
          return;
        }
        if (one.stamp < place->stamp) place = &one;
      }
      if (place->stamp > completed) {
        if (grow(completed)) continue;
        set.floor = std::max(set.floor, place->stamp);
      }
      *place = {block, stamp};
      return;
    }
  }
  // Of an unknown block: the highest stamp that it may lean on.
  Epoch of(driver::Address block) const {
    const Set& set = sets()[hash(block) % count_];
    for (const Leant& one : set.ways) {
      if (one.block == block) return one.stamp;
    }
    return set.floor;
  }
  // Blocks that were not noted may lean on this.
  void raise_floor(Epoch stamp) {
    for (size_t i = 0; i < count_; ++i) sets()[i].floor = std::max(sets()[i].floor, stamp);
  }
  // In place: some threads have little stack.
  void clear() {
    drop_more();
    count_ = kFewest;
    for (Set& set : few_) set = {};
  }

 private:
  struct Leant {
    driver::Address block = 0;
    Epoch stamp = 0;
  };
  static constexpr size_t kFewest = 256;  // sets; powers of two
  static constexpr size_t kMost = 16384;
  static constexpr size_t kWays = 4;
  struct Set {
    std::array<Leant, kWays> ways{};
    Epoch floor = 0;
  };

  // Blocks begin at multiples of 256 bytes, most of them at powers of two.
  static size_t hash(driver::Address block) {
    return static_cast<size_t>((block >> 8) * 0x9e3779b97f4a7c15u >> 32);
  }
  Set* sets() { return more_ != nullptr ? more_ : few_.data(); }
  const Set* sets() const { return more_ != nullptr ? more_ : few_.data(); }
  Set& set_of(driver::Address block) { return sets()[hash(block) % count_]; }

  // Twice as many sets: what was in one goes to that one and to its double, so that no place is missing.
  bool grow(Epoch completed) {
    if (count_ == kMost) return false;
    Set* const made = static_cast<Set*>(map_pages(2 * count_ * sizeof(Set)));  // zeroes: empty sets
    if (made == nullptr) return false;
    for (size_t i = 0; i < 2 * count_; ++i) made[i].floor = sets()[i % count_].floor;
    for (size_t i = 0; i < count_; ++i) {
      for (const Leant& one : sets()[i].ways) {
        if (one.stamp <= completed) continue;
        auto& ways = made[hash(one.block) % (2 * count_)].ways;
        *std::find_if(ways.begin(), ways.end(), [](const Leant& way) { return way.block == 0; }) = one;
      }
    }
    drop_more();
    more_ = made;
    count_ *= 2;
    return true;
  }
  void drop_more() {
    if (more_ != nullptr) unmap_pages(more_, count_ * sizeof(Set));
    more_ = nullptr;
  }

  std::array<Set, kFewest> few_{};
  Set* more_ = nullptr;
  size_t count_ = kFewest;
};

}  // namespace cupool::order
