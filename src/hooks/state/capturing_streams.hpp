// The streams that are capturing now. order/ only counts them; here they are told apart, so that each is
// counted once however its capture ends: normally, invalidated, with its stream or with its context. Under
// its own lock.
#pragma once

#include "cuda/real.hpp"
#include "driver/driver.hpp"

namespace cupool::hooks {

// Before the driver begins a capture.
void capture_begins(CUstream stream);
// The driver refused: this capture never began, but an earlier one of the stream may still be open.
void capture_was_refused(CUstream stream);
// `stream` is no longer capturing.
void capture_ended(CUstream stream);
// Ends every capture of a context that is being destroyed.
void captures_ended_with(driver::Context context);
}  // namespace cupool::hooks
