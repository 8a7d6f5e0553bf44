// Who has something of a context: its timeline, and every allocator with its memory there. endings.hpp tells
// them when a context ends. No state.
#pragma once

#include "driver/types.hpp"

namespace cupool::context {

class Resident {
 public:
  // The context is ending: no thread enters here from now on.
  virtual void shut(driver::Context) {}
  // Whether a thread that entered before is still in it. (Calls in flight are known without asking.)
  virtual bool is_in_use(driver::Context) { return false; }
  // No call in the context is in flight: drops what it has there, which the driver handles from now on.
  // `ending` is the number of this end, which rises and comes again with ended(), after the driver's call.
  virtual void begin_end(driver::Context context, uint64_t ending) = 0;
  // `gone` false: the driver refused, and the context lives on.
  virtual void ended(uint64_t ending, bool gone) = 0;

 protected:
  ~Resident() = default;
};

}  // namespace cupool::context
