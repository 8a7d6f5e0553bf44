// What each event of events.def tells. Addresses and handles are plain numbers, so that nothing here needs a
// CUDA header; a result is the driver's code, as the program gets it.
#pragma once

#include <cstdint>

#include "cuda/call.hpp"
#include "driver/driver.hpp"

namespace cupool::hooks::observe {

// Whose memory it is, or who refused.
enum class Server : uint8_t { kPool, kDriver };

// The program was given memory with an address. Told before it has the address.
struct Allocated {
  cuda::Call call;
  Server server;
  uint64_t address;
  uint64_t bytes;   // as asked for; of a pitched one, all rows
  uint64_t stream;  // of a stream-ordered allocation, its handle 0 resolved; else 0
  driver::Context context;
};

// The program gives memory back. Of the pool's memory this is told before the pool takes it, so that no other
// thread can be given the address first; of the driver's after the driver has said yes.
struct Freed {
  cuda::Call call;
  Server server;
  uint64_t address;
  uint64_t bytes;   // as asked for; 0: not known, it is the driver's
  uint64_t stream;  // of a stream-ordered free
  driver::Context context;
};

// An allocation or a free was refused. Two threads that free a block at the same time may both be told as
// freed; the one that came late is told as failed besides.
struct Failed {
  cuda::Call call;
  Server server;
  bool is_free;
  bool is_bad_pointer;  // a free of what is not, or no longer, the start of an allocation
  uint64_t address;     // of a free
  uint64_t bytes;       // of an allocation
  uint64_t stream;
  int result;
};

// Work was given to a stream.
struct Submitted {
  cuda::Call call;
  uint64_t stream;  // its handle 0 resolved; 0: several
  int result;
  uint64_t ns;  // how long the call took, if it is one in which the host may wait (a plain copy); else 0
};

// Any other call that went to the driver, or was refused as the driver would have refused it. A question that
// cupool answers itself is not told.
struct Forwarded {
  cuda::Call call;
  int result;
};

// The host waited for a stream, an event or a context.
struct Waited {
  cuda::Call call;
  uint64_t stream;  // 0: an event or a context
  int result;
  uint64_t ns;
};

}  // namespace cupool::hooks::observe
