// Contexts: made, made current, destroyed, and the primary one of each device, whose handle stays the same
// across resets while its identity does not. Under the state mutex, save for the thread's own stack of
// current contexts, which is the thread's.
#pragma once

#include <cuda.h>

#include <memory>

#include "sim/model.hpp"

namespace cupool::sim {

using ContextPtr = std::shared_ptr<Context>;

// `whole`: of a green context, the one that it is a part of.
ContextPtr create_context(int device, unsigned flags, ContextPtr whole = nullptr);
// Waits for all its work, then all it owns is gone.
void destroy_context(const ContextPtr& context);

ContextPtr retain_primary(int device);
CUresult release_primary(int device);
void reset_primary(int device);

// The context current to this thread, or why there is none that can be used.
CUresult current_context(ContextPtr& context);
// A context named by its handle.
CUresult named_context(CUcontext handle, ContextPtr& context);

bool push_current(const Context& context);
void set_current(const Context* context);  // null: pop

}  // namespace cupool::sim
