// Victim: a kernel ends the context of one device; the program learns of it while the context of another
// device is current, through its stream. Prints the answers; the other context goes on.
#include <thread>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

void say(const char* call, CUresult result) { std::printf("%s: %d\n", call, static_cast<int>(result)); }

}  // namespace

int main() {
  victim::Device healthy(victim::linked_api());
  int count = 0;
  VICTIM_CHECK(cuDeviceGetCount(&count));
  if (count < 2) {
    std::printf("one device\n");
    return 0;
  }
  CUcontext broken = nullptr, before = nullptr;
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  VICTIM_CHECK(cuDevicePrimaryCtxRetain(&broken, 1));
  VICTIM_CHECK(cuCtxPushCurrent(broken));
  VICTIM_CHECK(cuModuleLoadData(&module, victim::kKernels));
  VICTIM_CHECK(cuModuleGetFunction(&fill, module, "fill"));
  VICTIM_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  VICTIM_CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr nobodys = 0xdead0000;
  size_t bytes = 4096;
  unsigned value = 3;
  void* parameters[] = {&nobodys, &bytes, &value};
  VICTIM_CHECK(cuLaunchKernel(fill, 16, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr));
  VICTIM_CHECK(cuCtxPopCurrent(&before));
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY) {
    result = cuStreamQuery(stream);
    std::this_thread::yield();
  }
  say("query", result);
  say("wait for the stream", cuStreamSynchronize(stream));
  say("an event in the stream", cuEventRecord(event, stream));
  victim::exercise(healthy);
  const int wrong = healthy.finish("faults");
  VICTIM_CHECK(cuCtxPushCurrent(broken));
  CUdeviceptr p = 0;
  say("allocate in the context that ended", cuMemAlloc(&p, 4096));
  return wrong;
}
