// Victim: loads a plug-in, and with it a second libcuda, into a link namespace of its own with dlmopen.
// Preloaded libraries are not in that namespace; the first one must go on working beside it.
#include <dlfcn.h>

#include "linked_api.hpp"
#include "plugin.hpp"
#include "victim.hpp"

int main(int argc, char** argv) {
  if (argc != 2) victim::die("usage", "dlmopen PLUGIN", argc);
  victim::Device device(victim::linked_api());
  victim::exercise(device);

  void* plugin = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    // Static TLS of a second libcuda may not fit: the loader's answer, with or without an override.
    std::printf("dlmopen refused\n");
  } else {
    const auto run = reinterpret_cast<VictimPluginRun>(dlsym(plugin, "victim_plugin_run"));
    if (run == nullptr) victim::die("dlsym", "plug-in without its function", 0);
    if (const int code = run("dlmopen plug-in"); code != 0) return code;
  }
  victim::exercise(device);
  return device.finish("dlmopen");
}
