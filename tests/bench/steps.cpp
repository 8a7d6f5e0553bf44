// The two hot paths, so and so often, for a count of their instructions (scripts/count-instructions):
// steps pairs|submissions COUNT.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "victim.hpp"

namespace {

void must(CUresult result) {
  if (result != CUDA_SUCCESS) std::exit(static_cast<int>(result));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const long turns = std::atol(arguments[2]);
  const bool pairs = std::strcmp(arguments[1], "pairs") == 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  must(cuModuleLoadData(&module, victim::kKernels));
  must(cuModuleGetFunction(&kernel, module, "fill"));
  CUdeviceptr block = 0;
  must(cuMemAlloc(&block, 4096));
  size_t bytes = 64;
  unsigned value = 1;
  void* parameters[] = {&block, &bytes, &value};
  for (long i = 0; i < turns; ++i) {
    if (pairs) {
      CUdeviceptr p = 0;
      must(cuMemAlloc(&p, 4096));
      must(cuMemFree(p));
    } else {
      must(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
    }
  }
  must(cuCtxSynchronize());
  return 0;
}
