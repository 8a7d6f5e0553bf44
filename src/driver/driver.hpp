// The seam to the system underneath: everything pool/ and order/ ask of a CUDA driver, without a CUDA header.
// Three implementations: cuda/ (the real one), the simulated libcuda under it, and scripted ones in unit
// tests. Contract: 0 is success, any other number is the driver's own error and means that nothing happened,
// unless said otherwise below. No function throws. Every call may block or call back into the process: hold
// no pool lock. Calls about a whole context (record, order_after, synchronize) break the captures of its
// streams and go through order/capture_gate.hpp; no other call breaks a capture, but for allocate(), which is
// made for the program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cupool::driver {

using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kInvalidValue = 1;
inline constexpr Status kOutOfMemory = 2;
inline constexpr Status kInvalidContext = 201;
inline constexpr Status kNotReady = 600;
inline constexpr Status kNotSupported = 801;
inline constexpr Status kUnknown = 999;

// In place of a device's number.
inline constexpr int kEveryDevice = -1;

using Address = uint64_t;
using Context = struct ContextTag*;
using Event = struct EventTag*;
using Stream = struct StreamTag*;

class Driver {
 public:
  // Device memory of the current context, aligned to at least 512 bytes; above 1 MiB to 2 MiB.
  virtual Status allocate(size_t bytes, Address* out) = 0;
  // Waits for all work of the memory's context, then gives the memory back.
  // pre: `start` came from allocate() and nothing refers to it.
  virtual Status release(Address start) = 0;
  // As release(), from any thread: makes `context` current for the call.
  virtual Status release_in(Context context, Address start) = 0;
  // A stream of `context` for release_on(): no work goes there, so nothing on it waits for work.
  virtual Status create_stream(Context, Stream*) { return kNotSupported; }
  // Gives memory back on which no work is pending, and waits for none of what is pending elsewhere.
  // pre: as for release(), and `stream` came from create_stream() of `context`, which does not capture.
  virtual Status release_on(Context, Stream, Address) { return kNotSupported; }
  // Free and total bytes of the current context's device.
  virtual Status memory(size_t* free, size_t* total) = 0;
  // Whether allocate() may give so many bytes on a device. False: it would refuse now, whatever the driver
  // keeps in pools of its own or can move elsewhere. Waits for nothing.
  virtual bool might_give(int, uint64_t) { return true; }
  // The number of the current context's device.
  virtual Status device(int* number) {
    *number = 0;
    return kSuccess;
  }

  // Whether the host or another device may touch this memory outside stream order.
  virtual bool is_host_visible() const { return false; }
  // Whether it takes memory of the device, and is counted as such.
  virtual bool is_on_device() const { return !is_host_visible(); }
  // Whether it is made of chunks (mapping.hpp), which do not end with their context: drop() must follow.
  virtual bool is_mapped() const { return false; }
  virtual void drop(Address) {}

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
  // All work submitted to any stream of `context` after this call runs after `event`.
  virtual Status order_after(Context context, Event event) = 0;
  // Work submitted to `stream` after this call runs after `event`; no other stream waits.
  virtual Status wait_on(Stream stream, Event event) = 0;
  // Whether submissions to `stream` go into a graph instead of to the device.
  virtual bool is_capturing(Stream stream) = 0;
  // Whether a stream may be capturing without order/ knowing: then record() would break the capture.
  virtual bool may_be_capturing() { return false; }
  // Waits on the host for all work of `context`.
  virtual Status synchronize(Context context) = 0;

 protected:
  ~Driver() = default;
};

}  // namespace cupool::driver
