// The Driver seam over the real table. Every call goes to the driver's own functions under the re-entry
// guard, so that a library that the driver calls back (UCX) reaches the driver, not us. Stateless.
#pragma once

#include "driver/driver.hpp"

namespace cupool::cuda {

class CudaDriver final : public driver::Driver {
 public:
  driver::Status create_stream(driver::Context context, driver::Stream* out) override;
  driver::Status memory(size_t* free, size_t* total) override;
  driver::Status device(int* number) override;
  bool can_map(int device) override;
  bool has_context_events() const override;
  driver::Status create_event(driver::Context context, driver::Event* out) override;
  driver::Status record(driver::Context context, driver::Event event) override;
  driver::Status record_on(driver::Stream stream, driver::Event event) override;
  driver::Status query(driver::Event event) override;
  driver::Status order_after(driver::Context context, driver::Event event) override;
  driver::Status wait_on(driver::Stream stream, driver::Event event) override;
  bool is_capturing(driver::Stream stream) override;
  bool may_be_capturing() override;
  driver::Status synchronize(driver::Context context) override;
};

}  // namespace cupool::cuda
