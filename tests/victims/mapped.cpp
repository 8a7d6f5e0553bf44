// Victim: what mapped segments are for. `fragmented`: blocks of 1.5 MiB all over the device, few of which
// stay; then half of the device in one piece. `gaps`: kernels in a row on one stream while another thread
// gives gigabytes back; tells the longest time between the ends of two. `bigger PERCENT`: holds so much more
// than the driver says is free, with every block's bytes checked at the end.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

size_t free_memory() {
  size_t free = 0;
  size_t total = 0;
  VICTIM_CHECK(cuMemGetInfo(&free, &total));
  return free;
}

int fragmented(victim::Device& device) {
  constexpr size_t kBlock = 3 * kMiB / 2;
  constexpr size_t kOneStaysOf = 145;
  const size_t half = free_memory() / 2;
  std::vector<CUdeviceptr> blocks;
  for (CUdeviceptr block = 0; cuMemAlloc(&block, kBlock) == CUDA_SUCCESS;) blocks.push_back(block);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % kOneStaysOf != 0) device.free(blocks[i]);
  }
  CUdeviceptr large = 0;
  if (const CUresult result = cuMemAlloc(&large, half); result != CUDA_SUCCESS) {
    std::printf("half of the device in one piece: error %d\n", result);
    return 1;
  }
  device.fill(large, half, 3);
  device.check(large, half, 3);
  device.free(large);
  for (size_t i = 0; i < blocks.size(); i += kOneStaysOf) device.free(blocks[i]);
  return 0;
}

int gaps(victim::Device& device) {
  constexpr size_t kKernels = 20000;
  constexpr size_t kAhead = 500;
  constexpr size_t kBlock = 64 * kMiB;
  using Trim = size_t (*)(size_t);
  const auto trim = reinterpret_cast<Trim>(dlsym(RTLD_DEFAULT, "cupool_trim"));
  CUstream stream = nullptr;
  VICTIM_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<CUdeviceptr> blocks;
  for (size_t bytes = free_memory() / 8; blocks.size() * kBlock < bytes;)
    blocks.push_back(device.alloc(kBlock));
  for (const CUdeviceptr block : blocks) device.free(block);
  VICTIM_CHECK(cuCtxSynchronize());
  std::vector<CUevent> events(kKernels);
  for (CUevent& event : events) VICTIM_CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  size_t given = 0;
  std::thread other;
  for (size_t i = 0; i < kKernels; ++i) {
    if (i >= kAhead) VICTIM_CHECK(cuEventSynchronize(events[i - kAhead]));
    device.spin(10'000, stream);
    VICTIM_CHECK(cuEventRecord(events[i], stream));
    if (i == kKernels / 2 && trim != nullptr) {
      other = std::thread([&] {
        device.enter_thread();
        given = trim(0);
      });
    }
  }
  if (other.joinable()) other.join();
  VICTIM_CHECK(cuStreamSynchronize(stream));
  std::vector<float> times;
  for (size_t i = 1; i < kKernels; ++i) {
    float ms = 0;
    VICTIM_CHECK(cuEventElapsedTime(&ms, events[i - 1], events[i]));
    times.push_back(ms * 1e3F);
  }
  const auto longest = std::max_element(times.begin() + 1000, times.end());
  std::printf("gave back %zu MiB; longest %.1f us, median ", given / kMiB, static_cast<double>(*longest));
  std::nth_element(times.begin(), times.begin() + kKernels / 2, times.end());
  std::printf("%.1f us\n", static_cast<double>(times[kKernels / 2]));
  return 0;
}

int bigger(victim::Device& device, size_t percent) {
  constexpr size_t kBlock = 32 * kMiB;
  const size_t blocks = free_memory() / 100 * percent / kBlock;
  std::vector<CUdeviceptr> held;
  for (size_t i = 0; i < blocks; ++i) {
    held.push_back(device.alloc(kBlock));
    device.fill(held.back(), kBlock, static_cast<unsigned>(i));
  }
  for (size_t i = 0; i < held.size(); ++i) device.check(held[i], kBlock, static_cast<unsigned>(i));
  for (const CUdeviceptr block : held) device.free(block);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  victim::Device device(victim::linked_api());
  int wrong = 2;
  if (std::strcmp(what, "fragmented") == 0) wrong = fragmented(device);
  if (std::strcmp(what, "gaps") == 0) wrong = gaps(device);
  if (std::strcmp(what, "bigger") == 0 && argc > 2)
    wrong = bigger(device, std::strtoul(argv[2], nullptr, 10));
  if (wrong == 2) std::fprintf(stderr, "usage: mapped fragmented|gaps|bigger PERCENT\n");
  return wrong != 0 ? wrong : device.finish("mapped");
}
