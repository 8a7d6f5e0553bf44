// Fills the device with blocks, once for each argument, and frees them all: SIZE alone, or SIZE,SIZE,... in
// turn. Prints how many blocks, and how many bytes of them, came before the first refusal, and how much the
// driver said was free then.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

std::vector<size_t> sizes_in(const char* text) {
  std::vector<size_t> sizes;
  for (char* end = nullptr; *text != 0; text = *end == 0 ? end : end + 1)
    sizes.push_back(std::strtoull(text, &end, 10));
  return sizes;
}

}  // namespace

int main(int argc, char** argv) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 2;
  if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 2;
  for (int i = 1; i < argc; ++i) {
    const std::vector<size_t> sizes = sizes_in(argv[i]);
    std::vector<CUdeviceptr> blocks;
    size_t bytes = 0;
    for (CUdeviceptr block = 0;; blocks.push_back(block)) {
      const size_t size = sizes[blocks.size() % sizes.size()];
      if (cuMemAlloc(&block, size) != CUDA_SUCCESS) break;
      bytes += size;
    }
    size_t free = 0;
    size_t total = 0;
    if (cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return 2;
    std::printf("%s %zu %zu %zu\n", argv[i], blocks.size(), bytes, free);
    for (const CUdeviceptr block : blocks) {
      if (cuMemFree(block) != CUDA_SUCCESS) return 2;
    }
  }
  return 0;
}
