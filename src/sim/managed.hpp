// Managed memory as the host sees it. The pages are kept closed; the first touch of a page in a life comes to
// a fault handler, which notes it and opens the page. Closed again when a new life begins on it. Under the
// state mutex, save for the handler itself.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cupool::sim {

struct Allocation;

// Hands the oracle what the host has touched since the last driver call.
void tell_host_touches();

void show_managed(const Allocation& allocation);
void hide_managed(const Allocation& allocation);
// A new life on these bytes, if they are managed: the host's next touch must be seen.
void protect_managed(CUdeviceptr p, std::uint64_t bytes);

}  // namespace cupool::sim
