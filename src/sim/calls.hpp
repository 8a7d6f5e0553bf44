// The application's calls that are under way, of all threads: one that hangs inside the preloaded library
// cannot be seen otherwise. Written by each thread for itself, read by the one that judges a hang, without a
// lock: a process may fork at any time, and nothing moves when they are read.
#pragma once

#include <cstdint>

#include "sim/origin.hpp"

namespace cupool::sim {

struct CallUnderWay {
  ObservedCall call{};
  int tid = 0;
  std::uint64_t since_ns = 0;
};

// The calling thread's present call, or that it is in none.
void publish_call(const ObservedCall& call);

namespace detail {
struct CallSlot;
const CallSlot* next_call(const CallSlot* after, CallUnderWay& found);
}  // namespace detail

template <typename F>
void each_call_under_way(F&& visit) {
  CallUnderWay one;
  for (const auto* slot = detail::next_call(nullptr, one); slot != nullptr;
       slot = detail::next_call(slot, one)) {
    if (one.call.name != nullptr) visit(one);
  }
}

}  // namespace cupool::sim
