// Which lane will use the block that is being asked for? The present one, mostly; but a program that goes on
// in another stream asks for memory first. Programs repeat themselves, so the guess is what came next the
// last time that a block of this size was asked for at this place of such a turn. Only a preference hangs on
// it: a wrong guess costs a wait that the driver's free would have made, never the order. The owner's lock
// protects it.
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
  LaneName lane_ = LaneName::kNone;  // of the present turn, or of the one before an open one
  uint64_t work_ = 0;
  uint64_t place_ = 0;
};

}  // namespace cupool::order
