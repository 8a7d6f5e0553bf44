// See real.hpp. Threads that race to find the driver store the same pointers; the order of the stores does
// not matter, because each pointer alone is enough for its call.
#include "cuda/real.hpp"

#include <dlfcn.h>

namespace cupool::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

// The names under which glibc has versioned its dlsym: today's, then the oldest of each architecture.
constexpr const char* kLoaderVersions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_2.3.4"};

constinit std::atomic<Dlsym> found_dlsym{nullptr};
constinit std::atomic<void*> driver{nullptr};
constinit std::atomic<bool> announced{false};

void* ask_driver(const char* name, int version) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result =
      real.cuGetProcAddress_v2(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? found : nullptr;
}

void fill_table(void* handle) {
  const Dlsym find = real_dlsym();
#define CUPOOL_LATE(name, version)
#define CUPOOL_ROW(symbol, like) real.symbol.set(find(handle, #symbol));
#include "cuda/api.def"
#define CUPOOL_LATE(name, version) real.name.set(ask_driver(#name, version));
#include "cuda/api.def"
}

}  // namespace

constinit Real real;

Dlsym real_dlsym() {
  Dlsym found = found_dlsym.load(std::memory_order_relaxed);
  if (found != nullptr) [[likely]]
    return found;
  found = reinterpret_cast<Dlsym>(loader_function("dlsym"));
  found_dlsym.store(found, std::memory_order_relaxed);
  return found;
}

void* loader_function(const char* name) {
  for (const char* version : kLoaderVersions) {
    if (void* const found = dlvsym(RTLD_NEXT, name, version)) return found;
  }
  return nullptr;
}

void* driver_symbol(const char* name) { return real_dlsym()(driver.load(std::memory_order_acquire), name); }

bool find_driver(Search search) {
  if (driver.load(std::memory_order_acquire) != nullptr) [[likely]]
    return true;
  if (real_dlsym() == nullptr) return false;
  // First without loading: this also finds a library that this very thread is just loading.
  void* handle = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr && search == Search::kLoad) handle = dlopen(kLibrary, RTLD_LAZY);
  if (handle == nullptr) return false;
  fill_table(handle);
  driver.store(handle, std::memory_order_release);
  if (!announced.exchange(true, std::memory_order_relaxed)) on_first_use();
  return true;
}

}  // namespace cupool::cuda
