// Which moments of a trace are looked at: of a short one each event, of a long one the least and the most of
// many stretches, some of as many events and some of as much time, so that no peak is missed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "see/model.hpp"

namespace cupool::see {

struct ChosenMoments {
  std::vector<uint32_t> events;  // places in Model::order, rising
  std::vector<uint32_t> peaks;   // of each device: which of them has the most live memory
  uint32_t peak = 0;             // the same of all devices together
};
ChosenMoments choose_moments(const Model& model, size_t most);

// When the event of that place happened.
uint64_t time_of(const Model& model, size_t event);

}  // namespace cupool::see
