// The end of a context, step by step, for all residents alike: nobody begins anything there, all who are in
// it leave, then each resident drops what it has, and after the driver's call hears how that went. Who the
// residents are its caller says, `for_each(f)`: they come and go. No lock, and none of theirs is held here.
#pragma once

#include <atomic>

#include "context/in_flight.hpp"
#include "context/resident.hpp"

namespace cupool::context {

class Endings {
 public:
  constexpr explicit Endings(InFlight& in_flight) : in_flight_(in_flight) {}

  // Before the driver's call. Returns the number to pass to finish(), never 0. Residents are told in the
  // order of for_each().
  template <typename ForEach>
  uint64_t begin(driver::Context context, ForEach&& for_each) {
    in_flight_.begin_end(context);
    for_each([&](Resident& one) { one.shut(context); });
    in_flight_.wait(context, [&] {
      bool any = false;
      for_each([&](Resident& one) { any = any || one.is_in_use(context); });
      return any;
    });
    const uint64_t ending = last_.fetch_add(1, std::memory_order_relaxed) + 1;
    for_each([&](Resident& one) { one.begin_end(context, ending); });
    return ending;
  }
  // After it. `ending` 0: begin() was not called, because there was nothing to serve.
  template <typename ForEach>
  void finish(driver::Context context, uint64_t ending, bool gone, ForEach&& for_each) {
    if (ending != 0) for_each([&](Resident& one) { one.ended(ending, gone); });
    in_flight_.ended(context);
  }

 private:
  InFlight& in_flight_;
  std::atomic<uint64_t> last_{0};
};

}  // namespace cupool::context
