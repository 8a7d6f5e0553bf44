// Victim: loads like cudart: dlopen, dlsym of cuGetProcAddress_v2, then every name with its version, then
// the names again with the per-thread flag. Prints the driver's answers about names, versions and flags
// without addresses: the text must be the same with cupool and without.
#include <dlfcn.h>

#include "victim.hpp"

namespace {

using GetProcAddress = decltype(&::cuGetProcAddress_v2);
constexpr cuuint64_t kPlain = CU_GET_PROC_ADDRESS_DEFAULT;
constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

using OldGetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);

void ask(GetProcAddress get, const char* name, int version, cuuint64_t flags) {
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = get(name, &pointer, version, flags, &status);
  std::printf("ask %s version %d flags %d: result %d status %d pointer %s\n", name, version,
              static_cast<int>(flags), static_cast<int>(result), static_cast<int>(status),
              pointer == nullptr ? "null" : "set");
}

// Per-thread forms exist from CUDA 7.0 on: asked with an older version, the driver has none.
int per_thread_version(int version) { return version < 7000 ? 7000 : version; }

void* must_get(GetProcAddress get, const char* name, int version, cuuint64_t flags) {
  void* pointer = nullptr;
  VICTIM_CHECK(get(name, &pointer, version, flags, nullptr));
  return pointer;
}

void compare(GetProcAddress get, const char* name, int version) {
  const bool same = must_get(get, name, version, kPerThread) == must_get(get, name, version, kPlain);
  std::printf("%s per-thread pointer %s\n", name, same ? "same" : "differs");
}

}  // namespace

int main() {
  void* libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (libcuda == nullptr) victim::die("dlopen", dlerror(), 0);
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(libcuda, "cuGetProcAddress_v2"));
  const auto old_get = reinterpret_cast<OldGetProcAddress>(dlsym(libcuda, "cuGetProcAddress"));
  if (get == nullptr || old_get == nullptr) victim::die("dlsym", "no cuGetProcAddress", 0);

  victim::Device device(victim::load_api(
      [get](const char*, const char* name, int version) { return must_get(get, name, version, kPlain); }));
  victim::exercise(device);

  // The same program again through the per-thread entry points; only those that take a stream differ.
#define VICTIM_COMPARE(symbol, name, version) compare(get, name, per_thread_version(version));
  VICTIM_FUNCTIONS(VICTIM_COMPARE)
#undef VICTIM_COMPARE
  {
    victim::Device per_thread(victim::load_api([get](const char*, const char* name, int version) {
      return must_get(get, name, per_thread_version(version), kPerThread);
    }));
    victim::exercise(per_thread);
    if (const int wrong = per_thread.finish("getproc per-thread"); wrong != 0) return wrong;
  }

  // dlsym and cuGetProcAddress must agree, and cuGetProcAddress must find itself (cudart asks for it).
  std::printf("dlsym agrees %d\n",
              dlsym(libcuda, "cuMemAlloc_v2") == must_get(get, "cuMemAlloc", 3020, kPlain));
  void* by_old = nullptr;
  VICTIM_CHECK(old_get("cuMemAlloc", &by_old, 3020, kPlain));
  std::printf("old form agrees %d\n", by_old == must_get(get, "cuMemAlloc", 3020, kPlain));
  std::printf("finds itself %d\n",
              must_get(get, "cuGetProcAddress", 12000, kPlain) == reinterpret_cast<void*>(get));

  ask(get, "cuMemAlloc", 3020, kPlain);
  ask(get, "cuMemAllocAsync", 11020, kPlain);
  ask(get, "cuMemAllocAsync", 3020, kPlain);
  ask(get, "cuMemAllocAsync", 11020, kPerThread);
  ask(get, "cuLaunchKernel", 4000, kPerThread);
  ask(get, "cuNoSuchFunction", 13000, kPlain);
  ask(get, "cuMemAlloc", 13000, 99);
  ask(get, "", 13000, kPlain);
  return device.finish("getproc");
}
