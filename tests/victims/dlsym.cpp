// Victim: knows libcuda only through dlopen and dlsym, as PyTorch's lazy loader, CuPy and numba do.
#include <dlfcn.h>

#include "victim.hpp"

int main() {
  void* libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (libcuda == nullptr) victim::die("dlopen", dlerror(), 0);
  victim::Device device(
      victim::load_api([libcuda](const char* symbol, const char*, int) { return dlsym(libcuda, symbol); }));
  victim::exercise(device);

  // A name that no driver has must stay unknown, and dlerror must say so as without us.
  dlerror();
  const void* unknown = dlsym(libcuda, "cuNoSuchFunction");
  std::printf("unknown=%s error=%s\n", unknown == nullptr ? "null" : "found",
              dlerror() != nullptr ? "set" : "unset");
  return device.finish("dlsym");
}
