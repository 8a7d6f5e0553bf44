// The two sources of lives, and the calls the observer makes. The observer is recognised by a symbol it
// exports, looked up when the driver starts: then only the observer's word counts. Under the state mutex.
#include "sim/lives.hpp"

#include <dlfcn.h>

#include <cstring>

#include "sim/calls.hpp"
#include "sim/entry.hpp"
#include "sim/managed.hpp"
#include "sim/memory_pools.hpp"
#include "sim/options.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

bool observer_present = false;

bool watching() { return driver_life.load() == Life::kRunning && options().oracle; }

}  // namespace

void look_for_observer() { observer_present = dlsym(RTLD_DEFAULT, "cupool_observer_present") != nullptr; }

bool observed() { return observer_present; }

void own_life_begins(const Allocation& allocation, const char* call) {
  if (observed() || !options().oracle) return;
  state().oracle.begin(allocation.base, allocation.size, call, allocation.context_id,
                       state().added_waits.freed_in(allocation.context_id));
}

void own_life_ends(const Allocation& allocation, const char* call) {
  if (!options().oracle) return;
  if (!observed()) state().oracle.end(allocation.base);
  state().oracle.memory_gone(allocation.base, allocation.base + allocation.size, call);
}

void free_pooled_or_owned(CUdeviceptr p) {
  const Allocation* const known = state().allocations.exact(p);
  if (known->kind == MemoryKind::kPooled) {
    return_to_pool(*known, state().host);
  } else {
    state().allocations.destroy(p);
  }
}

}  // namespace cupool::sim

using namespace cupool::sim;

void cupoolSimLifeBegin(CUdeviceptr p, unsigned long long bytes, const char* kind) {
  if (!watching()) return;
  const Inside lock;
  ContextPtr context;
  const bool current = current_context(context) == CUDA_SUCCESS;
  const std::uint64_t owner = current ? context->whole_id() : 0;
  state().oracle.begin(p, bytes, kind, owner, state().added_waits.freed_in(owner));
  protect_managed(p, bytes);
}

int cupoolSimLifeEnd(CUdeviceptr p) {
  if (!watching()) return 0;
  const Inside lock;
  const std::uint64_t context = state().oracle.context_of(p);
  if (observed_call.name != nullptr && std::strcmp(observed_call.name, "cuMemFree_v2") == 0) {
    observed_call.freed_in = context;
    publish_call(observed_call);
    if (context != 0) state().added_waits.free_begins(context);
  }
  return state().oracle.end(p) ? 1 : 0;
}

void cupoolSimLifeGoesOn(CUdeviceptr p) {
  if (!watching()) return;
  const Inside lock;
  state().oracle.revive(p);
}
