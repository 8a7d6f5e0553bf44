// Fills the device with blocks, once for each argument, and frees them: SIZE alone, or SIZE,SIZE,... in turn;
// with /N at its end one of N blocks stays. Prints how many blocks came before the first refusal, how many
// bytes were held then, and how much the driver said was free.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

struct Step {
  std::vector<size_t> sizes;
  size_t one_stays_of = 0;
};

Step step_of(const char* text) {
  Step step;
  for (char* end = nullptr; *text != 0; text = *end == 0 ? end : end + 1) {
    step.sizes.push_back(std::strtoull(text, &end, 10));
    if (*end == '/') step.one_stays_of = std::strtoull(end + 1, &end, 10);
  }
  return step;
}

}  // namespace

int main(int argc, char** argv) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 2;
  if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 2;
  size_t bytes = 0;
  for (int i = 1; i < argc; ++i) {
    const Step step = step_of(argv[i]);
    std::vector<CUdeviceptr> blocks;
    const auto size_of = [&](size_t block) { return step.sizes[block % step.sizes.size()]; };
    for (CUdeviceptr block = 0;; blocks.push_back(block)) {
      const size_t size = size_of(blocks.size());
      if (cuMemAlloc(&block, size) != CUDA_SUCCESS) break;
      bytes += size;
    }
    size_t free = 0;
    size_t total = 0;
    if (cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return 2;
    std::printf("%s %zu %zu %zu\n", argv[i], blocks.size(), bytes, free);
    for (size_t block = 0; block < blocks.size(); ++block) {
      if (step.one_stays_of != 0 && block % step.one_stays_of == 0) continue;
      if (cuMemFree(blocks[block]) != CUDA_SUCCESS) return 2;
      bytes -= size_of(block);
    }
  }
  return 0;
}
