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
    const Next* const next = find(key);
    return next != nullptr ? next->lane : lane_;
  }

 private:
  struct Next {
    uint64_t key = 0;
    LaneName lane = LaneName::kNone;
  };

  // Two keys of a program may share a place: they must not push each other out each time.
  void learn(LaneName lane) {
    for (size_t i = 0; i < waiting_; ++i) {
      Next* next = find(asked_[i]);
      if (next == nullptr) next = &next_[index(asked_[i])];
      if (next->key != asked_[i] && next->key != 0) next = &next_[index(asked_[i]) ^ 1];
      *next = {asked_[i], lane};
    }
    waiting_ = 0;
  }
  Next* find(uint64_t key) {
    Next* const first = &next_[index(key)];
    Next* const second = &next_[index(key) ^ 1];
    return first->key == key ? first : second->key == key ? second : nullptr;
  }
  static uint64_t key_of(uint64_t bytes, LaneName present, uint64_t place) {
    return bytes ^ uint64_t { static_cast<uint16_t>(present) } << 48 ^ place << 36;
  }
  static size_t index(uint64_t key) { return key * 0x9e3779b97f4a7c15 >> 54; }

  std::array<Next, 1024> next_{};
  std::array<uint64_t, 8> asked_{};  // keys whose outcome is not known yet
  size_t waiting_ = 0;
  LaneName lane_ = LaneName::kNone;  // of the current turn, or of the last one if the turn is open
  uint64_t work_ = 0;
  uint64_t place_ = 0;
};

}  // namespace cupool::order
