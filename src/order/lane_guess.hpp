// Predicts which lane will use the block being allocated. Mostly the current one; but a program that moves on
// to another stream allocates first. Programs repeat themselves, so the prediction is the lane that came next
// the last time a block of this size was allocated at this position of such a turn. A wrong guess costs a
// wait that the driver's free would have made too, never correctness. The owner's lock protects it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "order/turns.hpp"

namespace cupool::order {

class LaneGuess {
 public:
  // `present`: whose turn it is, or none if the turn is open. `work` changes with every submission.
  LaneName guess(uint64_t bytes, LaneName present, uint64_t work) {
    if (present != LaneName::kNone && present != lane_) {
      lane_ = present;
      place_ = 0;
    }
    if (work != work_ && present != LaneName::kNone) learn(present);
    work_ = work;
    const uint64_t key = key_of(bytes, lane_, place_++);
    if (waiting_ < asked_.size()) asked_[waiting_++] = key;
    const Next& next = next_of(key);
    return next.key == key ? next.lane : lane_;
  }

 private:
  struct Next {
    uint64_t key = 0;
    LaneName lane = LaneName::kNone;
  };

  void learn(LaneName lane) {
    for (size_t i = 0; i < waiting_; ++i) next_of(asked_[i]) = {asked_[i], lane};
    waiting_ = 0;
  }
  static uint64_t key_of(uint64_t bytes, LaneName present, uint64_t place) {
    return bytes ^ uint64_t { static_cast<uint16_t>(present) } << 48 ^ place << 36;
  }
  Next& next_of(uint64_t key) { return next_[key * 0x9e3779b97f4a7c15 >> 54]; }

  std::array<Next, 1024> next_{};
  std::array<uint64_t, 8> asked_{};  // keys whose outcome is not known yet
  size_t waiting_ = 0;
  LaneName lane_ = LaneName::kNone;  // of the current turn, or of the last one if the turn is open
  uint64_t work_ = 0;
  uint64_t place_ = 0;
};

}  // namespace cupool::order
