// Which work a recorded pool knew to be done, from which step on. A trace names epochs, a replay goes by the
// events that closed them: each is remembered by the step it was recorded in.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "replay/program.hpp"

namespace cupool::tools {

class DoneWork {
 public:
  // In this step an event closed an epoch of a place.
  void seal(uint8_t place, uint64_t epoch, uint64_t step);
  struct Seen {
    uint64_t step;
    uint64_t asked;
    replay::Place::Done::By by;
  };
  // All work up to an epoch was seen to be done.
  void note(uint8_t place, uint64_t epoch, const Seen& seen, replay::Place* here) const;
  // In the end: both numbers of a place's list rise.
  static void settle(replay::Place* place);

 private:
  using Event = replay::Place::Done;
  std::map<uint8_t, std::vector<std::pair<uint64_t, uint64_t>>> seals_;  // of a place: epoch and event
};

}  // namespace cupool::tools
