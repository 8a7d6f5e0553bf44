// What the driver takes of a device for itself, where CUPOOL_SIM_CHARGES asks for it: so much for a context,
// a module, a kernel that is launched for the first time, and a larger print buffer. All of it goes back with
// the context. Under the state mutex.
#pragma once

#include <cstdint>

#include "sim/model.hpp"

namespace cupool::sim {

constexpr std::uint64_t kContextCharge = 96ull << 20;
constexpr std::uint64_t kModuleCharge = 4ull << 20;
constexpr std::uint64_t kKernelCharge = 6ull << 20;

// False: the device is full.
bool charge(Context& context, std::uint64_t bytes);
void discharge(Context& context);

}  // namespace cupool::sim
