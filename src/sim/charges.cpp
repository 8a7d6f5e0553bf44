// See charges.hpp. The last function is for the NVML beside this driver.
#include "sim/charges.hpp"

#include <mutex>

#include "sim/options.hpp"
#include "sim/state.hpp"

namespace cupool::sim {

bool charge(Context& context, std::uint64_t bytes) {
  if (!options().charges || bytes == 0) return true;
  const CUdeviceptr base = reserve_for_driver(context, bytes);
  if (base != 0) context.charged.push_back({base, granules_for(bytes)});
  return base != 0;
}

void discharge(Context& context) {
  for (const auto& [base, granules] : context.charged)
    state().arena(context.device).give(base, granules, false);
  context.charged.clear();
}

}  // namespace cupool::sim

// False: there is no such device, or no driver yet.
extern "C" bool cupool_sim_memory(int device, unsigned long long* total, unsigned long long* used) {
  using namespace cupool::sim;
  if (driver_life.load() != Life::kRunning) return false;
  const std::lock_guard<StateMutex> lock(state().mutex);
  if (device < 0 || device >= static_cast<int>(state().devices.size())) return false;
  *total = state().arena(device).capacity();
  *used = state().arena(device).used();
  return true;
}
