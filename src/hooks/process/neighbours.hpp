// This process and its neighbours in the registry (neighbours/registry.hpp): shows them its figures, gives
// idle memory back when one of them was refused, and asks them when this process was. Owns the registry. All
// but ask_neighbours() is for the background thread (background_thread.hpp).
#pragma once

#include <cstdint>

namespace cupool::hooks {

// Joins the others, if the user wants that.
void meet_neighbours();
// Sleeps until somebody asks, or the time is over.
void wait_for_neighbours(uint64_t ns);
// Does what they ask for, without making anybody in this process wait.
void answer_neighbours();
// Shows them this process's figures, if they have changed.
void show_to_neighbours();
// The process ends.
void leave_neighbours();

// The driver has refused memory of a device; `bytes` 0: nobody knows how much. True: neighbours gave some
// back, or may have. Costs nothing without neighbours; else waits for their answers, for a second at most.
bool ask_neighbours(int device, uint64_t bytes);

}  // namespace cupool::hooks
