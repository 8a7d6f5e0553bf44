// Streams as programs see them: which stream a handle means, what a submission is ordered after (the stream
// itself, what the host has seen, context waits, the legacy stream's rules), and what a wait waits for.
// All under the state mutex. Running the queues is scheduler.*'s business.
#pragma once

#include <cuda.h>

#include <memory>

#include "sim/model.hpp"

namespace cupool::sim {

using StreamPtr = std::shared_ptr<Stream>;
using WorkPtr = std::shared_ptr<const Work>;

StreamPtr create_stream(Context& context, StreamKind kind, unsigned flags, int priority);
void destroy_stream(const StreamPtr& stream);

// The stream a handle means in this context for this thread; null for a handle nobody knows.
StreamPtr find_stream(Context& context, CUstream handle);

// Into the stream's queue, or into its capture. The error is the capture's.
CUresult submit(const StreamPtr& stream, WorkPtr work);
// Into the queue, never into a capture; returns nothing because nothing can go wrong.
void enqueue(const StreamPtr& stream, WorkPtr work, const VectorClock& also_after = VectorClock());

// The stream's next operations, and waits for it, come after this, too.
void order_after(Stream& stream, const VectorClock& clock);
// What the stream's next operation is ordered after, whatever it is.
VectorClock before_next(const Stream& stream);
// What context waits make all work of the context wait for.
VectorClock context_floor(const Context& context);
// What a wait for the stream, or for a context with its green parts, covers; and of a part, without the
// context that it is a part of.
VectorClock stream_target(const Stream& stream);
VectorClock context_target(const Context& context);
VectorClock part_target(const Context& context);

}  // namespace cupool::sim
