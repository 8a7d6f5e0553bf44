// Runtime and driver calls mixed: after every call that may change the current context, memory must come from
// the context that the driver calls current. Prints one line a step; the same text bare and under cupool.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <initializer_list>
#include <thread>

namespace {

void allocate(const char* after) {
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  for (bool runtime : {false, true, false}) {
    void* p = nullptr;
    CUdeviceptr address = 0;
    const int result =
        runtime ? static_cast<int>(cudaMalloc(&p, 5000)) : static_cast<int>(cuMemAlloc(&address, 5000));
    if (runtime) address = reinterpret_cast<CUdeviceptr>(p);
    if (runtime) cuCtxGetCurrent(&current);  // the runtime makes one current where there is none
    if (result != 0) {
      std::printf("%s: %d\n", after, result);
      cudaGetLastError();
      continue;
    }
    CUcontext of = nullptr;
    cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    std::printf("%s: %s\n", after, of == current ? "in the current context" : "IN ANOTHER CONTEXT");
    runtime ? static_cast<void>(cudaFree(p)) : static_cast<void>(cuMemFree(address));
  }
}

}  // namespace

int main() {
  CUcontext own = nullptr, popped = nullptr;
  cudaFree(nullptr);
  allocate("first use of the runtime");
  cuCtxCreate(&own, nullptr, 0, 0);
  allocate("a context of its own");
  cudaSetDevice(0);
  allocate("cudaSetDevice");
  cuCtxSetCurrent(own);
  allocate("set");
  cudaInitDevice(0, 0, 0);
  allocate("cudaInitDevice");
  cudaDeviceSynchronize();
  allocate("cudaDeviceSynchronize");
  cuCtxPushCurrent(own);
  allocate("pushed");
  cuCtxPopCurrent(&popped);
  allocate("popped");
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  allocate("a stream");
  std::thread([&] {
    allocate("a new thread");
    cuCtxSetCurrent(own);
    allocate("its own context there");
    cudaSetDevice(0);
    allocate("cudaSetDevice there");
  }).join();
  int valid[1] = {0};
  cudaSetValidDevices(valid, 1);
  allocate("cudaSetValidDevices");
  cudaSetDevice(0);
  cudaDeviceReset();
  allocate("cudaDeviceReset");
  cudaSetDevice(0);
  allocate("cudaSetDevice after it");
  cuCtxSetCurrent(own);
  allocate("its own after it");
  cuCtxDestroy(own);
  allocate("destroyed");
  return 0;
}
