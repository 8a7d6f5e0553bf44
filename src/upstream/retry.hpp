// The retry after the driver refused memory. How to make room differs between allocators; how often to retry
// does not. No state, no lock.
#pragma once

#include "driver/types.hpp"

namespace cupool::upstream {

// Asks again while the answer is out of memory. `may_ask_again` releases what it can and tells whether
// anything has changed, by itself or by another thread; kMostTries bounds threads that keep taking each
// other's memory.
template <typename MayAsk, typename Ask>
driver::Status ask_again(MayAsk&& may_ask_again, Ask&& ask) {
  constexpr int kMostTries = 16;
  driver::Status status = driver::kOutOfMemory;
  for (int i = 0; i < kMostTries && status == driver::kOutOfMemory && may_ask_again(); ++i) status = ask();
  return status;
}

}  // namespace cupool::upstream
