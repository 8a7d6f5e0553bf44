// Call stacks of the allocation and free of every block, recorded only under CUPOOL_CHECK so that a bad free
// can be reported with both. One table under one lock: a debug aid need not be fast. The blocks freed longest
// ago are forgotten first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/lock.hpp"

namespace cupool::hooks {

class History {
 public:
  struct Stack {
    std::array<void*, 16> frames{};
    size_t count = 0;
  };
  struct Life {
    uint64_t start = 0;
    uint64_t bytes = 0;
    bool freed = false;
    Stack allocated;
    Stack returned;
  };

  void note_allocation(uint64_t start, uint64_t bytes);
  // Before a free is attempted; only a live block is recorded.
  void note_free(uint64_t start);
  // The live block at that address, or the last one that covered it.
  bool find(uint64_t address, Life* out);

 private:
  static constexpr size_t kMostFreed = 1 << 16;
  Lock lock_{Rank::kHistory};
  std::map<uint64_t, Life> lives_ CUPOOL_GUARDED_BY(lock_);
  std::map<uint64_t, uint64_t> freed_ CUPOOL_GUARDED_BY(lock_);  // age to address
  uint64_t ages_ CUPOOL_GUARDED_BY(lock_) = 0;
};

}  // namespace cupool::hooks
