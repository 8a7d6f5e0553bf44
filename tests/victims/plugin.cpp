// Victim: a plug-in that links libcuda itself. Which libcuda it binds to depends on how its host loads it.
#include "plugin.hpp"

#include "linked_api.hpp"
#include "victim.hpp"

int victim_plugin_run(const char* name) {
  victim::Device device(victim::linked_api());
  victim::exercise(device);
  return device.finish(name);
}

unsigned long long victim_plugin_alloc(std::size_t bytes) {
  CUdeviceptr p = 0;
  VICTIM_CHECK(cuMemAlloc_v2(&p, bytes));
  return p;
}
