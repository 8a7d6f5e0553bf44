// Pairs of an allocation and a free in several threads, until somebody kills it: until_killed FILE
// MICROSECONDS. What is done stands in the file, which outlives the program: of each thread its number, how
// many pairs, and when each of the last of them was over, by CLOCK_MONOTONIC. So a reader of the trace knows
// what the program did that the trace lacks.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace {

constexpr unsigned kThreads = 3;
constexpr std::uint64_t kKept = 1 << 20;

struct Done {
  std::atomic<std::uint64_t> thread;
  std::atomic<std::uint64_t> pairs;
  std::uint64_t over[kKept];
};

std::uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

void work(Done* done, CUcontext context, useconds_t pause) {
  cuCtxSetCurrent(context);
  done->thread = static_cast<std::uint64_t>(gettid());
  for (std::uint64_t i = 0;; ++i) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, 512) != CUDA_SUCCESS || cuMemFree(block) != CUDA_SUCCESS) std::_Exit(3);
    done->over[i % kKept] = now();
    done->pairs.store(i + 1, std::memory_order_release);
    if (pause != 0) usleep(pause);
  }
}

}  // namespace

int main(int count, char** arguments) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (count != 3 || cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return 3;
  const int file = open(arguments[1], O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Done) * kThreads) != 0) return 3;
  void* const memory = mmap(nullptr, sizeof(Done) * kThreads, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return 3;
  Done* const done = static_cast<Done*>(memory);
  const auto pause = static_cast<useconds_t>(std::strtoul(arguments[2], nullptr, 10));
  for (unsigned i = 0; i < kThreads; ++i) std::thread(work, &done[i], context, pause).detach();
  for (;;) ::pause();
}
