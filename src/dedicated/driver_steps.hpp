// How many bytes the driver gains by idle blocks, in the steps of 2 MiB in which it takes memory. Small
// blocks share steps, so one is gained only if every block on it is idle. Counted as blocks come, go and
// change, so that nobody who asks looks at all of them. Under the lock of the blocks.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/bytes.hpp"

namespace cupool::dedicated {

inline constexpr uint64_t kDriverStep = 2 << 20;  // the driver's granularity for large blocks

class DriverSteps {
 public:
  // What changes: a block is there (1) or is gone (-1), and is idle or is not.
  struct Change {
    int blocks = 0;
    int idle = 0;
  };
  // `alone`: the bytes of steps on which idle blocks of its owner lie, and nothing else.
  void note(uint64_t start, uint64_t bytes, uint64_t* alone, Change change) {
    const uint64_t end = start + bytes;
    const uint64_t inside = round_up(start, kDriverStep);
    const uint64_t outside = end / kDriverStep * kDriverStep;
    // Nobody else lies on a step that it fills.
    if (inside < outside) *alone += static_cast<uint64_t>(change.idle) * (outside - inside);
    if (start != inside) note_shared(start / kDriverStep, alone, change);
    const bool is_same = start != inside && start / kDriverStep == end / kDriverStep;
    if (end != outside && !is_same) note_shared(end / kDriverStep, alone, change);
  }
  // The bytes of steps on which idle blocks of several owners lie, and nothing else.
  uint64_t mixed() const { return mixed_; }

 private:
  struct Step {
    uint64_t* alone = nullptr;  // of all blocks there; null: they have several owners
    uint32_t blocks = 0;
    uint32_t idle = 0;
    bool is_idle() const { return blocks != 0 && idle == blocks; }
  };
  uint64_t& bytes_of(const Step& step) { return step.alone != nullptr ? *step.alone : mixed_; }
  void note_shared(uint64_t number, uint64_t* alone, Change change) {
    const auto [found, is_new] = shared_.try_emplace(number, Step{alone});
    Step& step = found->second;
    if (step.is_idle()) bytes_of(step) -= kDriverStep;
    if (step.alone != alone) step.alone = nullptr;
    step.blocks += static_cast<uint32_t>(change.blocks);
    step.idle += static_cast<uint32_t>(change.idle);
    if (step.is_idle()) bytes_of(step) += kDriverStep;
    if (step.blocks == 0) shared_.erase(found);
  }

  std::unordered_map<uint64_t, Step> shared_;  // those that some block fills in part only
  uint64_t mixed_ = 0;
};

}  // namespace cupool::dedicated
