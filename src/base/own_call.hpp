// Guards a driver call that we make on our own behalf, perhaps under a lock of ours: entry points reached
// from inside it act as if we were not there, and the thread cannot be cancelled in it, which would leave the
// lock held.
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
