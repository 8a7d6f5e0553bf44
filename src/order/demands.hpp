// What hand-outs ask of later submissions: to wait for the seal that covers a stamp. Of every lane, or of all
// but the one that alone did the block's old work, whose stream keeps the order by itself. Under the
// timeline's lock.
#pragma once

#include <algorithm>
#include <array>

#include "order/lane.hpp"
#include "order/turns.hpp"

namespace cupool::order {

class Demands {
 public:
  // False: that much was asked before.
  bool add(Epoch stamp, LaneName sole) {
    if (stamp <= everyone_) return false;
    if (sole == LaneName::kNone) {
      everyone_ = stamp;
      return true;
    }
    Of* place = &others_[0];
    for (Of& one : others_) {
      if (one.name == sole) {
        if (stamp <= one.stamp) return false;
        one.stamp = stamp;
        return true;
      }
      if (one.stamp < place->stamp) place = &one;
    }
    // What has no place is asked of everyone.
    everyone_ = std::max(everyone_, place->stamp);
    *place = {sole, stamp};
    return true;
  }
  // What a lane has to wait for. `name` none: one that did nothing alone.
  Epoch of(LaneName name) const {
    Epoch stamp = everyone_;
    for (const Of& one : others_) {
      if (one.name != name || name == LaneName::kNone) stamp = std::max(stamp, one.stamp);
    }
    return stamp;
  }
  Epoch highest() const { return of(LaneName::kNone); }

 private:
  struct Of {
    LaneName name = LaneName::kNone;
    Epoch stamp = 0;
  };

  Epoch everyone_ = 0;
  std::array<Of, 4> others_{};
};

}  // namespace cupool::order
