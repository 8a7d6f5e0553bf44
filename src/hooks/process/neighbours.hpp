// This process and its neighbours in the registry (neighbours/registry.hpp): shows them its figures, gives
// idle memory back when one of them was refused, and asks them when this process was. Owns the registry. All
// but ask_neighbours() is for the background thread (background_thread.hpp).
#pragma once

#include <cstdint>

namespace cupool::hooks {

// Joins the registry, if CUPOOL_NEIGHBOURS allows it.
void meet_neighbours();
// Sleeps until another process asks for memory, for `ns` at most.
void wait_for_neighbours(uint64_t ns);
// Releases idle memory for processes that have asked. No thread of this process waits for it.
void answer_neighbours();
// Publishes this process's figures, if they have changed.
void show_to_neighbours();
// The process ends.
void leave_neighbours();

// The driver has refused memory of a device; `bytes` 0: the amount is unknown. True: neighbours gave some
// back, or may have. Costs nothing without neighbours; else waits for their answers, for a second at most.
bool ask_neighbours(int device, uint64_t bytes);

}  // namespace cupool::hooks
