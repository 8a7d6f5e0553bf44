// The bytes of a legacy IPC handle of memory, as the driver gives them out. What is in them:
// sealed_handle.hpp for blocks of the driver's segments, export_token.hpp for mapped memory.
#pragma once

#include <array>

namespace cupool::share {

using Handle = std::array<unsigned char, 64>;

}  // namespace cupool::share
