// Which streams capture at this moment. order/ only counts them; here they have names, so that each is
// counted once however it ends: by its end, broken, with its stream or with its context. Under a lock of its
// own.
#pragma once

#include "cuda/real.hpp"
#include "driver/driver.hpp"

namespace cupool::hooks {

// Before the driver begins a capture.
void capture_begins(CUstream stream);
// The driver refused: this one never began, but the stream may have captured before.
void capture_was_refused(CUstream stream);
// `stream` captures no more.
void capture_ended(CUstream stream);
// Every capture of a context that is going away.
void captures_ended_with(driver::Context context);
}  // namespace cupool::hooks
