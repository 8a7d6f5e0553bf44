// This process and its neighbours in the registry (neighbours/registry.hpp): shows them its figures, gives
// idle memory back when one of them was refused, and asks them when this process was. Owns the registry.
#pragma once

#include <cstddef>
#include <cstdint>

#include "neighbours/registry.hpp"

namespace cupool::hooks {

// ---- For the file thread (file_thread.hpp).

// Joins the registry, if CUPOOL_NEIGHBOURS allows it.
void meet_neighbours();
// Sleeps until another process asks for memory, for `ns` at most; `hears`: whether it may use the registry.
void wait_for_neighbours(bool hears, uint64_t ns);
// What processes have asked for since the last call.
size_t hear_neighbours(neighbours::Ask* out, size_t most);
// Publishes this process's figures, if they have changed, or `anew` in any case.
void show_to_neighbours(const neighbours::Figures* now, size_t count, bool anew);
// The process ends.
void leave_neighbours();

// ---- For the background thread (background_thread.hpp).

// Releases idle memory for processes that have asked. No thread of this process waits for it. `goes_on` is
// asked before each call of the driver; false: enough for now.
void answer_neighbours(const neighbours::Ask* asks, size_t count, bool (*goes_on)());
// Learns the ids of the devices in use.
void note_devices();

// ---- For the others.

// Ends a sleep in wait_for_neighbours().
void end_wait_for_neighbours();

// The driver has refused memory of a device; `bytes` 0: the amount is unknown. True: neighbours gave some
// back, or may have. Costs nothing without neighbours; else waits for their answers, for a second at most.
bool ask_neighbours(int device, uint64_t bytes);

}  // namespace cupool::hooks
