// One call or two, so and so often, beside so many blocks or streams, for a count of their instructions
// (scripts/count-instructions, docs/growth.md): steps WHAT COUNT [BESIDE]. Prints nothing.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "victim.hpp"

namespace {

void must(CUresult result) {
  if (result != CUDA_SUCCESS) std::exit(static_cast<int>(result));
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr block = 0;
  must(cuMemAlloc(&block, bytes));
  return block;
}

CUstream make_stream() {
  CUstream stream = nullptr;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return 2;
  const auto is = [&](const char* what) { return std::strcmp(arguments[1], what) == 0; };
  const long turns = std::atol(arguments[2]);
  const size_t beside = count == 4 ? static_cast<size_t>(std::atol(arguments[3])) : 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  std::vector<CUstream> streams(is("streams") ? beside : 1);
  for (CUstream& stream : streams) stream = make_stream();
  must(cuModuleLoadData(&module, victim::kKernels));
  must(cuModuleGetFunction(&kernel, module, "fill"));
  CUdeviceptr block = allocate(4096);
  size_t bytes = 64;
  unsigned value = 1;
  void* parameters[] = {&block, &bytes, &value};
  const auto submit = [&](CUstream stream) {
    must(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  };
  std::vector<CUdeviceptr> blocks;
  while (!is("streams") && blocks.size() < beside) blocks.push_back(allocate(1024));
  std::mt19937_64 random(1);
  for (long i = 0; i < turns; ++i) {
    if (is("pairs")) {
      must(cuMemFree(allocate(4096)));
    } else if (is("submissions")) {
      submit(streams[0]);
    } else if (is("replacements")) {
      CUdeviceptr& one = blocks[random() % beside];
      must(cuMemFree(one));
      one = allocate(1024);
    } else if (is("ranges")) {
      CUdeviceptr base = 0;
      must(cuMemGetAddressRange(&base, &bytes, blocks[random() % beside] + 100));
    } else if (is("streams")) {
      const CUdeviceptr more = allocate(100'000);
      submit(streams[static_cast<size_t>(i) % beside]);
      must(cuMemFree(more));
      if (i % 200 == 0) must(cuCtxSynchronize());
    } else {
      return 2;
    }
  }
  must(cuCtxSynchronize());
  return 0;
}
