// What a victim plug-in exports and its hosts look up. Plain C, so that it crosses dlmopen namespaces.
#pragma once

#include <cstddef>

extern "C" {
// The common job, start to end, through the plug-in's own libcuda; gives an exit code.
int victim_plugin_run(const char* name);
// One allocation through the plug-in's own door, for the host to free through its own.
unsigned long long victim_plugin_alloc(std::size_t bytes);
}

using VictimPluginRun = decltype(&victim_plugin_run);
using VictimPluginAlloc = decltype(&victim_plugin_alloc);
