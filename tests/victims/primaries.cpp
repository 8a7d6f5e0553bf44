// Victim: one thread takes the primary context, uses its memory and gives the context back, with the memory
// in it, over and over; another makes and destroys contexts of its own. Every call must succeed.
// primaries [rounds].
#include <cuda.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

std::atomic<int> failures{0};

void must(const char* call, CUresult result) {
  if (result != CUDA_SUCCESS && failures++ < 5) std::printf("%s: %d\n", call, static_cast<int>(result));
}
#define MUST(call) must(#call, call)

void make_contexts(CUdevice device, const std::atomic<bool>& over) {
  while (!over) {
    CUcontext own = nullptr;
    CUdeviceptr p = 0;
    MUST(cuCtxCreate(&own, nullptr, 0, device));
    MUST(cuMemAlloc(&p, 1000));
    MUST(cuMemFree(p));
    MUST(cuCtxDestroy(own));
  }
}

void use_primary(CUdevice device, bool frees) {
  CUcontext primary = nullptr;
  CUdeviceptr small = 0, large = 0;
  MUST(cuDevicePrimaryCtxRetain(&primary, device));
  MUST(cuCtxSetCurrent(primary));
  MUST(cuMemAlloc(&small, 1000));
  MUST(cuMemAlloc(&large, 3 << 20));
  MUST(cuMemsetD8(small, 1, 1000));
  MUST(cuMemsetD8(large, 1, 3 << 20));
  MUST(cuMemFree(large));
  if (frees) MUST(cuMemFree(small));
  MUST(cuCtxSetCurrent(nullptr));
  MUST(cuDevicePrimaryCtxRelease(device));
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 100;
  CUdevice device = 0;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  std::atomic<bool> over{false};
  std::thread other([&] { make_contexts(device, over); });
  for (int round = 0; round < rounds; ++round) use_primary(device, round % 2 == 0);
  over = true;
  other.join();
  std::printf("%d calls failed\n", failures.load());
  return failures == 0 ? 0 : 1;
}
