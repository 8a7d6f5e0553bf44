// Of all device memory that the driver charges this process, who has taken it (report/charges.hpp).
#pragma once

#include "report/charges.hpp"

namespace cupool::hooks::observe {

// What is known of a device now. Asks the driver and NVML, which takes milliseconds; not in a signal handler.
report::Charges charges_of(int device);

// The same of all devices in use, for reports to come. Nothing where no report has that table.
void look_at_charges();

// A memory pool that the program made, or is about to destroy.
void note_pool(int device, uint64_t handle);
void forget_pool(uint64_t handle);

}  // namespace cupool::hooks::observe
