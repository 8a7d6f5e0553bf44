// Victim: a library that overrides cuMemAlloc_v2 and cuMemFree_v2 as profilers do, reaching the next one by
// dlsym(RTLD_NEXT). "Next" depends on who calls dlsym: an override of dlsym that calls on instead of jumping
// on changes the caller, and victim_tag() below then finds the wrong function or itself.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>

namespace {

std::atomic<unsigned long> allocs{0}, frees{0};

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  ++allocs;
  return next<decltype(&cuMemAlloc_v2)>("cuMemAlloc_v2")(p, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  ++frees;
  return next<decltype(&cuMemFree_v2)>("cuMemFree_v2")(p);
}

int victim_tag() {
  const auto behind = next<int (*)()>("victim_tag");
  return behind == nullptr ? -1 : 10 * behind() + 1;
}

// A driver function that nobody overrides must be the driver's own for every caller.
int victim_next_agrees() {
  void* libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const bool agrees =
      libcuda != nullptr && dlsym(RTLD_NEXT, "cuDeviceGetName") == dlsym(libcuda, "cuDeviceGetName");
  if (libcuda != nullptr) dlclose(libcuda);
  return agrees;
}

unsigned long victim_override_allocs() { return allocs; }
unsigned long victim_override_frees() { return frees; }
}
