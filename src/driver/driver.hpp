// The seam to the system underneath: contexts with their devices, streams and events, without a CUDA header.
// Memory is taken through source.hpp. Three implementations: cuda/ (the real one), the simulated libcuda
// under it, and scripted ones in unit tests. Contract: 0 is success, any other number is the driver's own
// error and means that nothing happened, unless said otherwise below. No function throws. Every call may
// block or call back into the process: hold no pool lock. Calls about a whole context (record, order_after,
// synchronize) break the captures of its streams and go through order/capture_gate.hpp; no other call breaks
// a capture.
#pragma once

#include "driver/types.hpp"

namespace cupool::driver {

class Driver {
 public:
  // The number of the current context's device.
  virtual Status device(int* number) {
    *number = 0;
    return kSuccess;
  }
  // Free and total bytes of the current context's device.
  virtual Status memory(size_t* free, size_t* total) = 0;

  // Whether a device can make addresses and memory apart (driver/mapping.hpp).
  virtual bool can_map(int /*device*/) { return true; }

  // A stream of `context` for Source::release_on(): no work goes there, so nothing on it waits for work.
  virtual Status create_stream(Context, Stream*) { return kNotSupported; }
  // Whether submissions to `stream` go into a graph instead of to the device.
  virtual bool is_capturing(Stream stream) = 0;
  // Whether a stream may be capturing without order/ knowing: then record() would break the capture.
  virtual bool may_be_capturing() { return false; }

  // Whether record() and order_after() exist (CUDA 12.5). Without them order/ can only synchronise.
  virtual bool has_context_events() const = 0;
  // An event of `context`, which need not be current in this thread.
  virtual Status create_event(Context context, Event* out) = 0;
  // The event is done when all work submitted to any stream of `context` before this call is.
  virtual Status record(Context context, Event event) = 0;
  // The event is done when all work submitted to `stream`, of the event's context, before this call is.
  virtual Status record_on(Stream, Event) { return kNotSupported; }
  // kSuccess: done. kNotReady: not yet.
  virtual Status query(Event event) = 0;
  // The same for a count alone: nothing is decided by the answer, and a replay has none.
  virtual Status query_to_count(Event event) { return query(event); }
  // All work submitted to any stream of `context` after this call runs after `event`.
  virtual Status order_after(Context context, Event event) = 0;
  // Work submitted to `stream` after this call runs after `event`; no other stream waits.
  virtual Status wait_on(Stream stream, Event event) = 0;
  // Waits on the host for all work of `context`.
  virtual Status synchronize(Context context) = 0;

 protected:
  ~Driver() = default;
};

}  // namespace cupool::driver
