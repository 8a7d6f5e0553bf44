// Victim: a kernel fails, which ends the context for good, while memory that went from hand to hand in one
// stream is about to be used in another. Prints what the driver says to every call after that; the same text
// bare and under cupool.
#include <thread>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

void say(const char* call, CUresult result) { std::printf("%s: %d\n", call, static_cast<int>(result)); }

}  // namespace

int main() {
  victim::Device device(victim::linked_api());
  CUstream first = nullptr, second = nullptr;
  VICTIM_CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  VICTIM_CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  constexpr size_t kBytes = 4096;
  CUdeviceptr held = device.alloc(kBytes), large = device.alloc(kBytes << 10), managed = 0;
  VICTIM_CHECK(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  CUdeviceptr p = device.alloc(kBytes);
  device.fill(p, kBytes, 1, first);
  device.free(p);
  p = device.alloc(kBytes);
  device.fill(p, kBytes, 2, first);
  device.fill(0xdead0000, kBytes, 3, first);  // nobody's memory
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY) {
    result = cuStreamQuery(first);
    std::this_thread::yield();
  }
  say("query", result);
  say("memset on the other stream", cuMemsetD8Async(p, 0, kBytes, second));
  say("copy on the other stream", cuMemcpyDtoDAsync(p, p + kBytes / 2, 1, second));
  say("wait", cuCtxSynchronize());
  say("memset once more", cuMemsetD8Async(p, 0, kBytes, second));
  say("alloc", cuMemAlloc(&p, kBytes));
  p = 0x1234;
  say("alloc managed memory", cuMemAllocManaged(&p, kBytes, CU_MEM_ATTACH_GLOBAL));
  std::printf("which is %s\n", p == 0 ? "none" : "something");
  for (const CUdeviceptr block : {held, large, managed}) {
    say("free inside", cuMemFree(block + 4));
    say("free", cuMemFree(block));
    say("free again", cuMemFree(block));
  }
  say("free nothing", cuMemFree(0));
  return 0;
}
