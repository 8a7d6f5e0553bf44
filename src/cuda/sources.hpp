// The sources of memory over the real table: one class for each of the driver's functions that give some. As
// in cuda_driver.hpp every call is under the re-entry guard. Stateless.
#pragma once

#include "driver/source.hpp"

namespace cupool::cuda {

// cuMemAlloc.
class DeviceMemory : public driver::Source {
 public:
  driver::Status allocate(size_t bytes, driver::Address* out) override;
  driver::Status release(driver::Address start) override;
  driver::Status release_in(driver::Context context, driver::Address start) override;
  driver::Status release_on(driver::Context context, driver::Stream stream, driver::Address start) override;
  bool might_give(int device, uint64_t bytes) override;
};

// cuMemAllocManaged, with one attach flag. It goes back as device memory does.
class ManagedMemory final : public DeviceMemory {
 public:
  constexpr explicit ManagedMemory(unsigned flags) : flags_(flags) {}

  driver::Status allocate(size_t bytes, driver::Address* out) override;
  bool is_host_visible() const override { return true; }

 private:
  unsigned flags_;
};

}  // namespace cupool::cuda
