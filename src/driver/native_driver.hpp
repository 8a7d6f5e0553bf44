// The seam to the driver's own stream-ordered pools, apart from driver.hpp because a driver may lack them.
// The same contract: 0 is success, nothing throws, any call may block or call back into the process: hold no
// pool lock.
#pragma once

#include "driver/types.hpp"

namespace cupool::driver {

using MemoryPool = struct MemoryPoolTag*;

struct NativeSettings {
  uint64_t max_bytes = 0;  // 0: no bound
  uint64_t keep = 0;       // bytes that stay reserved when the program waits
  bool follow_events = true;
  bool opportunistic = true;
  bool internal_dependencies = false;
  bool shareable = false;  // as a file descriptor
};

struct NativeUsage {
  uint64_t used = 0;
  uint64_t peak_used = 0;
  uint64_t reserved = 0;
  uint64_t peak_reserved = 0;
};

// A pointer as it travels to another process.
inline constexpr size_t kExportBytes = 64;

class NativeDriver {
 public:
  // Whether this driver has all functions below and the current context's device supports them.
  virtual bool has_native_pools() = 0;
  virtual Status create_pool(int device, const NativeSettings& settings, MemoryPool* out) = 0;
  // The settings as the driver has them now; those it does not report stay unchanged.
  virtual Status read_settings(MemoryPool pool, NativeSettings* out) = 0;
  virtual Status destroy_pool(MemoryPool pool) = 0;
  // In the current context; other streams do not wait for it (non-blocking).
  virtual Status create_stream(Stream* out) = 0;
  virtual Status synchronize_stream(Stream stream) = 0;

  virtual Status allocate_on(MemoryPool pool, Stream stream, size_t bytes, Address* out) = 0;
  virtual Status free_on(Stream stream, Address start) = 0;
  virtual Status record_on(Stream stream, Event event) = 0;
  // Of an event that is done: from then on the pool knows that the frees before it are.
  virtual Status synchronize_event(Event event) = 0;

  // The pool that an address belongs to, or null.
  virtual MemoryPool pool_of(Address address) = 0;
  virtual Status trim(MemoryPool pool, uint64_t keep) = 0;
  virtual Status usage(MemoryPool pool, NativeUsage* out) = 0;
  virtual Status reset_peaks(MemoryPool pool) = 0;

  virtual Status export_pool(MemoryPool pool, int* descriptor) = 0;
  virtual Status import_pool(int descriptor, MemoryPool* out) = 0;
  virtual Status export_pointer(Address start, void* data) = 0;
  virtual Status import_pointer(MemoryPool pool, const void* data, Address* out) = 0;

 protected:
  ~NativeDriver() = default;
};

}  // namespace cupool::driver
