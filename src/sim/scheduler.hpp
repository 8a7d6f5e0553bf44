// The device's own pace. Queued operations run late, in steps, on whichever thread happens to be inside a
// driver call: a seeded generator decides how many steps a call lets pass and which stream takes them.
// Nothing runs before all it is ordered after. All under the state mutex, which is released only around a
// program's own host functions and while waiting for something another thread must do.
#pragma once

#include <functional>
#include <memory>

#include "sim/clock.hpp"
#include "sim/model.hpp"

namespace cupool::sim {

// Called by every entry point that reaches the device: maybe some work gets done meanwhile.
void tick();
// As tick, but never nothing for ever: polling loops end.
void tick_for_query();

bool done(const VectorClock& target);
// Runs until everything in `target` has finished; the host has then seen it.
void complete(const VectorClock& target);
// The host found `target` done: later submissions of any thread come after it.
void host_saw(const VectorClock& target);

// For the last look at a process that hangs: one step of any operation that can run. A host function is not
// begun, only named.
bool run_anything(bool& host_function);

// The calling thread stands in its call until something is over that has to do with work of the stream.
void stand_until(const Stream& stream, const std::function<bool()>& over);
// What every call on a stream does while a launch stands in its full queue.
void stand_with_launches(const Stream& stream);
// A stream of the context or of a green part of it in whose full queue a launch stands; null: none.
std::shared_ptr<Stream> standing_in(std::uint64_t context_id);
// A call that waits while a launch stands in a full queue of the context (measured on an H200).
void stand_beside_launches(const Context& context);
// A destroyed stream whose last operation is done leaves its context.
void retire_stream(const std::shared_ptr<Stream>& stream);

}  // namespace cupool::sim
