// The seam to memory of one kind: how it is taken and given back, and what is true of all of it. Device
// memory and managed memory are sources (cuda/sources.hpp), and so is what spills to host memory
// (mapped/spill.hpp); unit tests script theirs. A source knows no streams and no events: those are
// driver.hpp's, whichever the kind. The same contract as there: 0 is success, any other answer means that
// nothing happened, nothing throws, and any call may block or call back into the process: hold no pool lock.
// No call but allocate(), which is made for the program, breaks a capture.
#pragma once

#include "driver/types.hpp"

namespace cupool::driver {

class Source {
 public:
  // Memory for the current context, aligned to at least 512 bytes; above 1 MiB to 2 MiB.
  virtual Status allocate(size_t bytes, Address* out) = 0;
  // Waits for all work of the memory's context, then gives the memory back.
  // pre: `start` came from allocate() and nothing refers to it.
  virtual Status release(Address start) = 0;
  // As release(), from any thread: makes `context` current for the call.
  virtual Status release_in(Context context, Address start) = 0;
  // Gives memory back on which no work is pending, and waits for none of what is pending elsewhere.
  // pre: as for release(), and `stream` came from Driver::create_stream() of `context`, which does not
  // capture.
  virtual Status release_on(Context, Stream, Address) { return kNotSupported; }
  // Whether allocate() may give so many bytes on a device. False: it would refuse now, whatever the driver
  // keeps in pools of its own or can move elsewhere. Waits for nothing.
  virtual bool might_give(int, uint64_t) { return true; }

  // Whether the host or another device may touch this memory outside stream order.
  virtual bool is_host_visible() const { return false; }
  // Whether it takes memory of the device, and is counted as such.
  virtual bool is_on_device() const { return !is_host_visible(); }
  // Whether it is made of chunks (mapping.hpp), which do not end with their context: drop() must follow.
  virtual bool is_mapped() const { return false; }
  virtual void drop(Address) {}

 protected:
  ~Source() = default;
};

}  // namespace cupool::driver
