// Where lives come from. With an observer in front, the application's allocations and frees, told through the
// exported cupoolSimLife* calls; without one, the simulated driver's own. Under the state mutex.
#pragma once

#include <cuda.h>

#include "sim/allocations.hpp"

namespace cupool::sim {

// Looks for an observer in the process; called once, when the driver starts.
void look_for_observer();
bool observed();

void own_life_begins(const Allocation& allocation, const char* call);
// Also checks, with an observer, that nobody lives in memory that goes back to the device.
void own_life_ends(const Allocation& allocation, const char* call);

// Frees memory of any kind cuMemFree takes: back to its pool, or to the device.
void free_pooled_or_owned(CUdeviceptr p);

}  // namespace cupool::sim

extern "C" {
// The observer's side. `kind` must be a string that lives as long as the process.
void cupoolSimLifeBegin(CUdeviceptr p, unsigned long long bytes, const char* kind);
// 1 when a life ended there. Called before the free goes down.
int cupoolSimLifeEnd(CUdeviceptr p);
// The free failed after all: the life that was ended goes on.
void cupoolSimLifeGoesOn(CUdeviceptr p);
}
