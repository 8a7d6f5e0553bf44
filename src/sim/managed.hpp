// Managed memory as the host sees it. The pages are kept closed; the first touch of a page in a life comes to
// a fault handler, which tells the oracle that the host is there and opens the page. Closed again when a new
// life begins on it. The regions are readable without the lock, for the handler.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cupool::sim {

struct Allocation;

void show_managed(const Allocation& allocation);
void hide_managed(const Allocation& allocation);
// A new life on these bytes, if they are managed: the host's next touch must be seen.
void protect_managed(CUdeviceptr p, std::uint64_t bytes);

}  // namespace cupool::sim
