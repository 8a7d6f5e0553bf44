// Victim: calls one function of cupool's table that is marked as repeated, four times, with arguments of no
// meaning: the injected faults answer before the driver looks at them. Before the first two calls the pool
// has something to release, before the others nothing. Prints the four answers; without an argument, the
// names.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "cuda/real.hpp"

namespace {

alignas(64) unsigned char zeros[1 << 16];

template <typename T>
T meaningless() {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
    return reinterpret_cast<T>(reinterpret_cast<uintptr_t>(zeros));
  } else {
    return T{};
  }
}
// Handles are pointers too, and must be null.
template <>
CUstream meaningless() {
  return nullptr;
}
template <>
CUcontext meaningless() {
  return nullptr;
}

template <typename Function>
struct Caller;
template <typename... Args>
struct Caller<CUresult (*)(Args...)> {
  static CUresult call(void* function) {
    std::memset(zeros, 0, sizeof zeros);
    return reinterpret_cast<CUresult (*)(Args...)>(function)(meaningless<Args>()...);
  }
};

struct Row {
  const char* name;
  int room;
  CUresult (*call)(void*);
};

#define CUPOOL_REAL(name)
#define CUPOOL_LATE(name, version)
#define CUPOOL_ROW(symbol, like) \
  Row{#symbol, cupool::cuda::room_of(#symbol), &Caller<decltype(&::like)>::call},
constexpr Row kRows[] = {
#include "cuda/api.def"
};

template <typename... Args>
void must(const char* name, Args... args) {
  using Function = CUresult (*)(Args...);
  const CUresult result = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name))(args...);
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %d\n", name, static_cast<int>(result));
  std::_Exit(3);
}

void fill_cache() {
  CUdeviceptr block = 0;
  must("cuMemAlloc_v2", &block, size_t{32} << 20);
  must("cuMemFree_v2", block);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Row& row : kRows) {
    if (row.room == cupool::cuda::kNotRepeated) continue;
    if (argc == 1) std::printf("%s\n", row.name);
    if (name != row.name) continue;
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CUcontext context = nullptr;
    must("cuInit", 0u);
    if (name == "cuDevicePrimaryCtxRetain") {
      must("cuCtxCreate_v2", &context, 0u, CUdevice{0});
    } else {
      must("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
      must("cuCtxSetCurrent", context);
    }
    void* const function = dlsym(RTLD_DEFAULT, row.name);
    fill_cache();
    if (argc > 2) {
      CUstream stream = nullptr;
      must("cuStreamCreate", &stream, 1u);
      must("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
      std::printf("%d\n", row.call(function));
      return 0;
    }
    std::printf("%d ", row.call(function));
    fill_cache();
    std::printf("%d ", row.call(function));
    std::printf("%d ", row.call(function));
    std::printf("%d\n", row.call(function));
  }
  return 0;
}
