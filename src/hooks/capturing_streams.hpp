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

// Around a wait for an event, which may draw the stream into a capture.
class CaptureMaySpread {
 public:
  explicit CaptureMaySpread(CUstream stream);
  ~CaptureMaySpread();
  CaptureMaySpread(const CaptureMaySpread&) = delete;
  CaptureMaySpread& operator=(const CaptureMaySpread&) = delete;

 private:
  const CUstream stream_;
  const bool may_;
};

// Whether a free of the driver's own waits for all work while a stream captures: not known of what was
// submitted to a captured stream before. Ask before the free for `since`, and after it.
bool captures_hide_no_work(uint64_t* since);
bool have_hidden_no_work(uint64_t since);
}  // namespace cupool::hooks
