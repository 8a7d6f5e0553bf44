// The one retry after a refusal. What an allocator can do to make room differs; how often it is worth trying
// does not.
#pragma once

#include "driver/driver.hpp"

namespace cupool::upstream {

// Asks again while the answer is out of memory. `make_room` gives back what it can, and tells whether that,
// or another thread meanwhile, has changed anything; threads that give and take under each other's hands end
// after kMostTries.
template <typename MakeRoom, typename Ask>
driver::Status ask_again(MakeRoom&& make_room, Ask&& ask) {
  constexpr int kMostTries = 16;
  driver::Status status = driver::kOutOfMemory;
  for (int i = 0; i < kMostTries && status == driver::kOutOfMemory && make_room(); ++i) status = ask();
  return status;
}

}  // namespace cupool::upstream
