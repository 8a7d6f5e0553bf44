// Predicts which lane will use the block being allocated. Mostly the current one; but a program that moves on
// to another stream allocates first. Programs repeat themselves, so the prediction is the lane that came next
// the last time a block of this size was allocated at this position of such a turn. A wrong guess costs a
// wait that the driver's free would have made too, or memory, never correctness. The owner's lock protects
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "order/turns.hpp"

namespace cupool::order {

class LaneGuess {
 public:
  // `mark` is that of the calling thread's last piece of work. If the guess is not the lane whose turn it is,
  // the caller leaves the turn open.
  LaneName guess(uint64_t bytes, const Turns::Present& present, uint64_t mark) {
    if (present.name != LaneName::kNone && present.name != lane_) {
      lane_ = present.name;
      place_ = 0;
    }
    learn(present, mark);
    const uint64_t key = key_of(bytes, lane_, place_++);
    const Next* const next = find(key);
    const LaneName guess = next != nullptr ? next->lane : lane_;
    const bool leaves = present.name != LaneName::kNone && guess != present.name;
    if (waiting_ < asked_.size())
      asked_[waiting_++] = {key, mark, present.number + (leaves ? 1 : 0),
                            leaves ? LaneName::kNone : present.name};
    return guess;
  }

 private:
  struct Next {
    uint64_t key = 0;
    LaneName lane = LaneName::kNone;
  };
  // A block whose lane is not known yet.
  struct Asked {
    uint64_t key = 0;
    uint64_t mark = 0;
    uint64_t turn = 0;
    LaneName lane = LaneName::kNone;  // whose turn it was; none: it was open
  };

  void learn(const Turns::Present& present, uint64_t mark) {
    if (present.name == LaneName::kNone) return;
    size_t left = 0;
    for (size_t i = 0; i < waiting_; ++i) {
      const Asked& asked = asked_[i];
      if (asked.turn == present.number && asked.mark == mark) {
        asked_[left++] = asked;  // nothing was submitted since
      } else if (asked.turn == present.number) {
        note(asked.key, present.name);
      } else if (asked.turn + 1 == present.number && asked.lane != LaneName::kNone) {
        // The turn has passed on. If not with the very next piece of work, the block was for its own lane.
        note(asked.key, present.began == asked.mark + 1 ? present.name : asked.lane);
      }
    }
    waiting_ = left;
  }
  // Two keys of a program may share a place: they must not push each other out each time.
  void note(uint64_t key, LaneName lane) {
    Next* next = find(key);
    if (next == nullptr) next = &next_[index(key)];
    if (next->key != key && next->key != 0) next = &next_[index(key) ^ 1];
    *next = {key, lane};
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

  size_t waiting_ = 0;
  LaneName lane_ = LaneName::kNone;  // of the current turn, or of the last one if the turn is open
  uint64_t place_ = 0;
  std::array<Asked, 8> asked_{};
  std::array<Next, 1024> next_{};
};

}  // namespace cupool::order
