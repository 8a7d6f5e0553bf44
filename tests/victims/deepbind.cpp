// Victim: loads a plug-in with RTLD_DEEPBIND, so that the plug-in's calls reach libcuda past any override.
// What the plug-in allocated is then used and freed by the host: a pointer nobody told the override about.
#include <dlfcn.h>

#include "linked_api.hpp"
#include "plugin.hpp"
#include "victim.hpp"

int main(int argc, char** argv) {
  if (argc != 2) victim::die("usage", "deepbind PLUGIN", argc);
  victim::Device device(victim::linked_api());
  victim::exercise(device);

  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
  if (plugin == nullptr) victim::die("dlopen", dlerror(), 0);
  const auto run = reinterpret_cast<VictimPluginRun>(dlsym(plugin, "victim_plugin_run"));
  const auto alloc = reinterpret_cast<VictimPluginAlloc>(dlsym(plugin, "victim_plugin_alloc"));
  if (run == nullptr || alloc == nullptr) victim::die("dlsym", "plug-in without its functions", 0);
  if (const int code = run("deepbind plug-in"); code != 0) return code;

  for (std::size_t bytes : {std::size_t{100}, std::size_t{5} << 20}) {
    const CUdeviceptr p = alloc(bytes);
    device.fill(p, bytes, 3);
    device.check(p, bytes, 3);
    device.free(p);
  }
  victim::exercise(device);
  return device.finish("deepbind");
}
