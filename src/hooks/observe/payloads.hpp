// What each event of events.def tells. Addresses and handles are plain numbers, so that nothing here needs a
// CUDA header; a result is the driver's code, as the program gets it.
#pragma once

#include <cstdint>

#include "cuda/call.hpp"
#include "driver/driver.hpp"
#include "stats/service.hpp"

namespace cupool::hooks::observe {

// Whose memory it is, or who refused.
enum class Server : uint8_t { kPool, kDriver };

// What it is, if it is not device memory with an address: then `address` is its handle, and the driver's.
enum class Memory : uint8_t {
  kDevice,
  kManaged,
  kStream,
  kNode,
  kPhysical,
  kArray,
  kPinned,
  kRegistered,
  kImported
};

// The program was given memory. Told before it has the address.
struct Allocated {
  cuda::Call call;
  Server server;
  uint64_t address;
  uint64_t bytes;   // as asked for; of a pitched one, all rows
  uint64_t stream;  // of a stream-ordered allocation, its handle 0 resolved; else 0
  driver::Context context;
  Memory memory = Memory::kDevice;
  uint64_t given = 0;  // bytes of the block, with the slack; 0: as asked for
  stats::Service service = {};
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
  Memory memory = Memory::kDevice;
  uint64_t began = 0;  // when the call began
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
  uint64_t ns;            // how long the call took; 0: not known
  bool is_plain = false;  // a plain copy or memset, in which the host may wait
};

// Any other call that went to the driver, or was refused as the driver would have refused it. A question that
// cupool answers itself is not told.
struct Forwarded {
  cuda::Call call;
  int result;
  uint64_t ns = 0;  // how long the call took; 0: not known
};

// A call of the driver is about to be made, and was made: those that are forwarded, and those by which memory
// comes or goes that is not the pool's. Told besides all else.
struct Calling {
  cuda::Call call;
};
struct Called {
  cuda::Call call;
  uint64_t ns;
};

// The host waited for a stream, an event or a context.
struct Waited {
  cuda::Call call;
  uint64_t stream;  // 0: an event or a context
  int result;
  uint64_t ns;
};

// A call that was told as an allocation, a free or a failure took longer than such a call usually does. Told
// besides, once it is over.
struct Lasted {
  cuda::Call call;
  bool is_free;
  uint64_t stream;
  int result;
  uint64_t ns;
};
inline constexpr uint64_t kLong = 20'000;  // nanoseconds

// Memory was exported to another process, or what was imported is closed.
struct Shared {
  cuda::Call call;
  bool is_export;
  uint64_t address;
  uint64_t bytes;  // 0: not known
};

// A context has ended, and what the program had in it. `began`: before the driver's call.
struct ContextEnded {
  driver::Context context;
  uint64_t began;
};

}  // namespace cupool::hooks::observe
