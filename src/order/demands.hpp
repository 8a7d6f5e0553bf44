// What hand-outs ask of all lanes but one: to wait for the seal that covers a stamp. The one is the lane that
// alone did the block's old work, whose stream keeps the order by itself. What is asked of every lane is
// Timeline::lean_. Under the timeline's lock.
#pragma once

#include <algorithm>
#include <array>

#include "order/lane.hpp"
#include "order/turns.hpp"

namespace cupool::order {

class Demands {
 public:
  enum class Added { kNothing, kNew };
  struct Result {
    Added added;
    Epoch displaced;  // had no place any more: to be asked of every lane. 0: nothing was.
  };

  Result add(Epoch stamp, LaneName sole) {
    Demand* place = &demands_[0];
    for (Demand& one : demands_) {
      if (one.sole == sole) {
        if (stamp <= one.stamp) return {Added::kNothing, 0};
        one.stamp = stamp;
        return {Added::kNew, 0};
      }
      if (one.stamp < place->stamp) place = &one;
    }
    const Epoch displaced = place->stamp;
    *place = {sole, stamp};
    return {Added::kNew, displaced};
  }
  // What a lane has to wait for. `name` none: a lane that did nothing alone.
  Epoch of(LaneName name) const {
    Epoch stamp = 0;
    for (const Demand& one : demands_) {
      if (one.sole != name || name == LaneName::kNone) stamp = std::max(stamp, one.stamp);
    }
    return stamp;
  }
  Epoch highest() const { return of(LaneName::kNone); }

 private:
  struct Demand {
    LaneName sole = LaneName::kNone;
    Epoch stamp = 0;
  };

  std::array<Demand, 4> demands_{};
};

}  // namespace cupool::order
