// The driver functions that victims use, named once, and the ways to come by them.
// A victim differs from the others by the door it takes (linked, dlsym, cuGetProcAddress): it fills an
// Api through that door and hands it to Device. Names are ABI names, so that a row is a symbol.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

namespace victim {

// X(symbol, name asked of cuGetProcAddress, version to ask with)
#define VICTIM_FUNCTIONS(X)                                           \
  X(cuInit, "cuInit", 2000)                                           \
  X(cuDriverGetVersion, "cuDriverGetVersion", 2020)                   \
  X(cuDeviceGet, "cuDeviceGet", 2000)                                 \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)       \
  X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000) \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000)                         \
  X(cuCtxSynchronize, "cuCtxSynchronize", 2000)                       \
  X(cuModuleLoadData, "cuModuleLoadData", 2000)                       \
  X(cuModuleGetFunction, "cuModuleGetFunction", 2000)                 \
  X(cuLaunchKernel, "cuLaunchKernel", 4000)                           \
  X(cuMemAlloc_v2, "cuMemAlloc", 3020)                                \
  X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020)                      \
  X(cuMemAllocManaged, "cuMemAllocManaged", 6000)                     \
  X(cuMemFree_v2, "cuMemFree", 3020)                                  \
  X(cuMemFreeAsync, "cuMemFreeAsync", 11020)                          \
  X(cuMemGetInfo_v2, "cuMemGetInfo", 3020)                            \
  X(cuMemsetD8_v2, "cuMemsetD8", 3020)                                \
  X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020)                            \
  X(cuStreamCreate, "cuStreamCreate", 2000)                           \
  X(cuStreamDestroy_v2, "cuStreamDestroy", 4000)                      \
  X(cuStreamSynchronize, "cuStreamSynchronize", 2000)                 \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", 3020)                     \
  X(cuEventCreate, "cuEventCreate", 2000)                             \
  X(cuEventRecord, "cuEventRecord", 2000)                             \
  X(cuEventDestroy_v2, "cuEventDestroy", 4000)

struct Api {
#define VICTIM_MEMBER(symbol, name, version) decltype(&::symbol) symbol;
  VICTIM_FUNCTIONS(VICTIM_MEMBER)
#undef VICTIM_MEMBER
};

[[noreturn]] inline void die(const char* what, const char* detail, int code) {
  std::fprintf(stderr, "victim: %s: %s (%d)\n", what, detail, code);
  std::exit(2);
}

// find(symbol, name, version) gives the function or null; a victim cannot go on without one.
template <typename Find>
Api load_api(Find find) {
  Api api;
#define VICTIM_LOAD(symbol, name, version)                                           \
  api.symbol = reinterpret_cast<decltype(api.symbol)>(find(#symbol, name, version)); \
  if (api.symbol == nullptr) die("no such driver function", #symbol, 0);
  VICTIM_FUNCTIONS(VICTIM_LOAD)
#undef VICTIM_LOAD
  return api;
}

}  // namespace victim

#define VICTIM_CHECK(call)                                                  \
  do {                                                                      \
    const CUresult victim_result_ = (call);                                 \
    if (victim_result_ != CUDA_SUCCESS)                                     \
      victim::die(#call, "driver error", static_cast<int>(victim_result_)); \
  } while (0)
