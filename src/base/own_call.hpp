// Around a call of the driver that we make for ourselves, perhaps under a lock of ours: entry points reached
// from inside it act as if we were not there, and the thread cannot be cancelled in it, for then nobody would
// unlock.
#pragma once

#include "base/output.hpp"
#include "base/reentry.hpp"

namespace cupool {

class OwnCall {
 private:
  Reentry reentry_;
  CancelShield shield_;
};

}  // namespace cupool
