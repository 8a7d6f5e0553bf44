// A program that makes every kind of call that is counted a known number of times, so that a test can compare
// the report with what was done. A call that fails although it should not is printed.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

namespace {

constexpr size_t kBytes = 1 << 20;
CUdevice device = 0;

void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) std::printf("%s: error %d\n", call, static_cast<int>(result));
}
#define MUST(call) must(call, #call)

CUdeviceptr block() {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, kBytes));
  return p;
}

void kinds_of_memory(CUstream stream) {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  for (int i = 0; i < 2; ++i) {
    MUST(cuMemAllocPitch(&p, &pitch, 100, 10, 4));
    MUST(cuMemFree(p));
  }
  for (int i = 0; i < 3; ++i) {
    MUST(cuMemAllocManaged(&p, kBytes, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemFree(p));
  }
  if (cuMemAllocPitch(&p, &pitch, 0, 10, 4) == CUDA_SUCCESS ||
      cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS)
    std::puts("memory of no bytes was given");
  for (int i = 0; i < 4; ++i) {
    MUST(cuMemAllocAsync(&p, kBytes, stream));
    if (i != 0) MUST(cuMemFreeAsync(p, stream));
  }
  // The last stream-ordered block but one way of freeing: the driver's own free takes it.
  MUST(cuMemAllocAsync(&p, kBytes, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree(p));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, 2 << 20, &properties, 0));
  MUST(cuMemRelease(handle));
  CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr;
  for (int i = 0; i < 2; ++i) MUST(cuArrayCreate(&array, &shape));
}

void questions() {
  const CUdeviceptr p = block();
  CUdeviceptr base = 0;
  size_t bytes = 0, free = 0;
  unsigned type = 0;
  for (int i = 0; i < 3; ++i) MUST(cuMemGetAddressRange(&base, &bytes, p));
  for (int i = 0; i < 2; ++i) MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  MUST(cuMemGetInfo(&free, &bytes));
  MUST(cuMemFree(p));
  cuMemFree(p);
  cuMemFree(16);
  cuMemAlloc(&base, size_t{1} << 60);
}

void taints(CUstream stream) {
  CUdeviceptr blocks[4];
  for (CUdeviceptr& p : blocks) p = block();
  CUipcMemHandle handle;
  for (int i = 0; i < 2; ++i) MUST(cuIpcGetMemHandle(&handle, blocks[0]));
  const unsigned on = 1;
  MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[1]));
  // Counted whatever the driver answers: it may have given them.
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {};
  cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, blocks[2]);
  int descriptor = -1;
  cuMemGetHandleForAddressRange(&descriptor, blocks[3], kBytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  for (const CUdeviceptr p : blocks) MUST(cuMemFree(p));
  CUdeviceptr managed[3];
  for (CUdeviceptr& p : managed) MUST(cuMemAllocManaged(&p, kBytes, CU_MEM_ATTACH_GLOBAL));
  CUmemLocation here = {};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  MUST(cuMemAdvise(managed[0], kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  MUST(cuStreamAttachMemAsync(stream, managed[1], 0, CU_MEM_ATTACH_GLOBAL));
  MUST(cuMemPrefetchAsync(managed[2], kBytes, here, 0, stream));
  for (const CUdeviceptr p : managed) MUST(cuMemFree(p));
}

void captures(CUstream stream) {
  for (int i = 0; i < 2; ++i) {
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
  }
}

void contexts() {
  CUcontext first = nullptr, second = nullptr;
  MUST(cuCtxGetCurrent(&first));
  for (int i = 0; i < 2; ++i) {
    MUST(cuCtxCreate(&second, nullptr, 0, device));
    block();
    MUST(cuCtxDestroy(second));
    MUST(cuCtxSetCurrent(first));
  }
}

void names() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  for (const char* name : {"cuMemAlloc_v2", "cuMemFree_v2", "cuInit", "cuGetErrorName"}) dlsym(driver, name);
  for (const char* name : {"cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuGetErrorName"}) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult how;
    MUST(cuGetProcAddress(name, &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &how));
  }
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  kinds_of_memory(stream);
  questions();
  taints(stream);
  captures(stream);
  contexts();
  names();
  MUST(cuDevicePrimaryCtxRelease(device));
  return 0;
}
