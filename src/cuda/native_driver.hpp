// The seam to stream-ordered pools over the real table. No state; every call under the re-entry guard.
#pragma once

#include "driver/native_driver.hpp"

namespace cupool::cuda {

class CudaNativeDriver final : public driver::NativeDriver {
 public:
  bool has_native_pools() override;
  driver::Status create_pool(int device, const driver::NativeSettings& settings,
                             driver::MemoryPool* out) override;
  driver::Status read_settings(driver::MemoryPool pool, driver::NativeSettings* out) override;
  driver::Status destroy_pool(driver::MemoryPool pool) override;
  driver::Status create_stream(driver::Stream* out) override;
  driver::Status synchronize_stream(driver::Stream stream) override;
  driver::Status allocate_on(driver::MemoryPool pool, driver::Stream stream, size_t bytes,
                             driver::Address* out) override;
  driver::Status free_on(driver::Stream stream, driver::Address start) override;
  driver::Status record_on(driver::Stream stream, driver::Event event) override;
  driver::Status synchronize_event(driver::Event event) override;
  driver::MemoryPool pool_of(driver::Address address) override;
  driver::Status trim(driver::MemoryPool pool, uint64_t keep) override;
  driver::Status usage(driver::MemoryPool pool, driver::NativeUsage* out) override;
  driver::Status reset_peaks(driver::MemoryPool pool) override;
  driver::Status export_pool(driver::MemoryPool pool, int* descriptor) override;
  driver::Status import_pool(int descriptor, driver::MemoryPool* out) override;
  driver::Status export_pointer(driver::Address start, void* data) override;
  driver::Status import_pointer(driver::MemoryPool pool, const void* data, driver::Address* out) override;
};

}  // namespace cupool::cuda
