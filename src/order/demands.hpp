// Demands of hand-outs on all lanes but one: to wait for the seal that covers a stamp. The exempt lane did
// all the block's old work, so its stream keeps the order by itself. Demands on every lane are in
// Timeline::lean_. Under the timeline's lock; calls no driver.
#pragma once

#include <algorithm>
#include <array>

#include "order/lane.hpp"
#include "order/turns.hpp"

namespace cupool::order {

class Demands {
 public:
  struct Result {
    bool is_new;
    Epoch displaced;  // evicted: now demanded of every lane. 0: none.
  };

  Result add(Epoch stamp, LaneName sole) {
    Demand* place = &demands_[0];
    for (Demand& one : demands_) {
      if (one.sole == sole) {
        if (stamp <= one.stamp) return {false, 0};
        one.stamp = stamp;
        return {true, 0};
      }
      if (one.stamp < place->stamp) place = &one;
    }
    const Epoch displaced = place->stamp;
    *place = {sole, stamp};
    return {true, displaced};
  }
  // The stamp a lane has to wait for. `name` none: a lane without blocks of its own.
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
