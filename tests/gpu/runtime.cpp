// A program of the CUDA runtime without kernels: allocates, clears, copies back, checks, frees, and says how
// often. Built twice, with the static and the shared runtime, which come to the driver by different ways of
// loading.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "runtime: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(2);
}

}  // namespace

int main() {
  unsigned long allocs = 0, frees = 0, wrong = 0;
  for (int round = 1; round <= 3; ++round) {
    std::vector<void*> blocks;
    for (size_t bytes : {size_t{1}, size_t{512}, size_t{100000}, size_t{1} << 20, size_t{7} << 20}) {
      void* p = nullptr;
      check(cudaMalloc(&p, bytes), "cudaMalloc");
      ++allocs;
      check(cudaMemset(p, round, bytes), "cudaMemset");
      std::vector<unsigned char> host(bytes);
      check(cudaMemcpy(host.data(), p, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (unsigned char byte : host) wrong += byte != round;
      blocks.push_back(p);
    }
    for (void* p : blocks) {
      check(cudaFree(p), "cudaFree");
      ++frees;
    }
  }
  std::printf("runtime: allocs=%lu frees=%lu wrong=%lu\n", allocs, frees, wrong);
  return wrong == 0 ? 0 : 1;
}
