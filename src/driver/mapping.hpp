// The seam to the driver's virtual memory management: addresses without memory, memory without addresses
// (chunks), and mappings that bring the two together. Apart from driver.hpp because a driver may lack it. The
// same contract: 0 is success, nothing throws, any call may block or call back into the process: hold no pool
// lock. None of these calls waits for work or needs a current context.
#pragma once

#include "driver/types.hpp"

namespace cupool::driver {

// A piece of physical memory; 0: none.
enum class Chunk : uint64_t { kNone = 0 };

// Where the memory of a chunk lies. Host memory: of the device's own part of the machine.
enum class Backing { kDevice, kHost };

// Sizes and addresses are multiples.
inline constexpr uint64_t kMappingStep = 2 << 20;

class Mapping {
 public:
  // Whether this driver has all functions below and the device supports them.
  virtual bool can_map(int device) = 0;

  virtual Status reserve(uint64_t bytes, Address* out) = 0;
  // pre: all of a reservation, in which nothing is mapped.
  virtual Status unreserve(Address start, uint64_t bytes) = 0;

  // Memory that a device can be given access to, and that can be exported where the driver allows it.
  virtual Status create(int device, Backing backing, uint64_t bytes, Chunk* out) = 0;
  // The memory goes back once it is not mapped either.
  virtual Status release(Chunk chunk) = 0;

  // All of a chunk, at reserved addresses where nothing is mapped. No device may access it yet.
  virtual Status map(Address at, uint64_t bytes, Chunk chunk) = 0;
  // One or more whole mappings, side by side. Does not wait: work that still uses the memory fails.
  virtual Status unmap(Address start, uint64_t bytes) = 0;
  // Lets each of these devices read and write one or more whole mappings, or no longer.
  enum class Access { kNone, kReadWrite };
  virtual Status allow(Address start, uint64_t bytes, const int* devices, size_t count, Access access) = 0;

  // The chunk that is mapped at an address, which the caller releases.
  virtual Status retain(Address address, Chunk* out) = 0;
  // As a file descriptor, which the caller closes.
  virtual Status export_chunk(Chunk chunk, int* descriptor) = 0;
  virtual Status import_chunk(int descriptor, Chunk* out) = 0;

 protected:
  ~Mapping() = default;
};

}  // namespace cupool::driver
