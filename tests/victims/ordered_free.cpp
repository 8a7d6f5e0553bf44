// Victim: stream-ordered frees of ordinary blocks. The stream that frees waits for the streams that used the
// block, in this context or ("peer") in another one; what is allocated next is used on a third stream. The
// block's work is before the free for all that, so the next owner's must come after it.
#include <cstring>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

// Streams, kernels and an event of one context.
struct Side {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction fill = nullptr, spin = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;

  void open(CUcontext of) {
    context = of;
    VICTIM_CHECK(cuCtxPushCurrent(context));
    VICTIM_CHECK(cuModuleLoadData(&module, victim::kKernels));
    VICTIM_CHECK(cuModuleGetFunction(&fill, module, "fill"));
    VICTIM_CHECK(cuModuleGetFunction(&spin, module, "spin"));
    VICTIM_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    VICTIM_CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    VICTIM_CHECK(cuCtxPopCurrent(&of));
  }

  // Slow work on the block, and an event behind it.
  void use(CUdeviceptr p, size_t bytes, unsigned value) {
    unsigned long long ns = 20000;
    void* slow[] = {&ns};
    void* parameters[] = {&p, &bytes, &value};
    CUcontext popped = nullptr;
    VICTIM_CHECK(cuCtxPushCurrent(context));
    VICTIM_CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, slow, nullptr));
    VICTIM_CHECK(cuLaunchKernel(fill, 16, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr));
    VICTIM_CHECK(cuEventRecord(event, stream));
    VICTIM_CHECK(cuCtxPopCurrent(&popped));
  }
};

}  // namespace

int main(int count, char** arguments) {
  victim::Device device(victim::linked_api());
  const bool peer = count > 1 && std::strcmp(arguments[1], "peer") == 0;
  CUcontext here = nullptr, there = nullptr;
  VICTIM_CHECK(cuCtxGetCurrent(&here));
  if (peer) {
    VICTIM_CHECK(cuCtxCreate(&there, nullptr, 0, device.device()));
    VICTIM_CHECK(cuCtxPopCurrent(&there));
  }
  Side user;
  user.open(peer ? there : here);
  CUstream frees = nullptr, next = nullptr;
  VICTIM_CHECK(cuStreamCreate(&frees, CU_STREAM_NON_BLOCKING));
  VICTIM_CHECK(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
  for (unsigned round = 0; round < 30; ++round) {
    const size_t bytes = round % 3 == 0 ? 4096 : round % 3 == 1 ? 70000 : 3 << 20;
    CUdeviceptr p = device.alloc(bytes);
    user.use(p, bytes, 7);
    VICTIM_CHECK(cuStreamWaitEvent(frees, user.event, 0));
    VICTIM_CHECK(cuMemFreeAsync(p, frees));
    p = device.alloc(bytes);
    device.fill(p, bytes, round, next);
    device.check(p, bytes, round, next);
    VICTIM_CHECK(cuMemFreeAsync(p, next));
  }
  return device.finish("ordered_free");
}
