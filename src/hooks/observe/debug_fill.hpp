// A listener that fills blocks as they are allocated and freed (CUPOOL_FILL, CUPOOL_ZERO). A fill is work on
// the device like any other, ordered after all work of the old life and before all of the new.
#pragma once

#include "driver/driver.hpp"

namespace cupool::hooks::observe {

// A context ends.
void forget_fill_stream(driver::Context context);

}  // namespace cupool::hooks::observe
