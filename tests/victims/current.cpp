// Victim: changes the current context in every way there is, and after each change asks the driver which
// context it is and allocates. Prints whether the memory belongs to that context, or the error; the same text
// bare and under cupool.
#include <cuda.h>

#include <cstdio>
#include <initializer_list>
#include <thread>

namespace {

void allocate(const char* after) {
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  for (size_t bytes : {size_t{4096}, size_t{300000}, size_t{8} << 20}) {
    CUdeviceptr p = 0;
    const CUresult result = cuMemAlloc(&p, bytes);
    if (result != CUDA_SUCCESS) {
      std::printf("%s: %d\n", after, static_cast<int>(result));
      continue;
    }
    CUcontext of = nullptr;
    cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    std::printf("%s: %s\n", after, of == current ? "in the current context" : "IN ANOTHER CONTEXT");
    cuMemFree(p);
  }
}

// Attached to once more, a context stays when it is detached from. Deprecated, but there.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void attach(CUcontext current) {
  CUdeviceptr small = 0, large = 0;
  CUcontext same = nullptr;
  cuMemAlloc(&small, 4096);
  cuMemAlloc(&large, size_t{8} << 20);
  std::printf("attach: %d\n", static_cast<int>(cuCtxAttach(&same, 0)));
  std::printf("detach: %d\n", static_cast<int>(cuCtxDetach(current)));
  allocate("detached");
  std::printf("free: %d %d\n", static_cast<int>(cuMemFree(small)), static_cast<int>(cuMemFree(large)));
}
#pragma GCC diagnostic pop

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext primary = nullptr, first = nullptr, second = nullptr, popped = nullptr;
  cuInit(0);
  cuDeviceGet(&device, 0);
  allocate("no context");
  cuDevicePrimaryCtxRetain(&primary, device);
  allocate("retained only");
  cuCtxSetCurrent(primary);
  allocate("primary");
  cuCtxCreate(&first, nullptr, 0, device);
  allocate("created");
  cuCtxCreate(&second, nullptr, 0, device);
  allocate("created on top");
  cuCtxPopCurrent(&popped);
  allocate("popped");
  cuCtxPushCurrent(primary);
  allocate("pushed");
  std::thread([&] {
    allocate("a new thread");
    cuCtxSetCurrent(second);
    allocate("another thread's");
  }).join();
  allocate("the other thread is gone");
  cuCtxSetCurrent(second);
  allocate("set");
  std::thread([&] { cuCtxDestroy(second); }).join();
  allocate("destroyed by another thread");
  std::thread([&] {
    cuCtxCreate(&second, nullptr, 0, device);
    allocate("perhaps with the old handle");
  }).join();
  allocate("still destroyed");
  cuCtxDestroy(second);
  cuCtxSetCurrent(first);
  allocate("set once more");
  attach(first);
  cuCtxDestroy(first);
  allocate("destroyed");
  cuCtxSetCurrent(primary);
  allocate("primary again");
  cuDevicePrimaryCtxReset(device);
  allocate("reset");
  cuCtxSetCurrent(nullptr);
  allocate("none");
  cuDevicePrimaryCtxRetain(&primary, device);
  cuCtxSetCurrent(primary);
  allocate("after the reset");
  cuDevicePrimaryCtxRelease(device);
  cuDevicePrimaryCtxRelease(device);
  allocate("released");
  return 0;
}
