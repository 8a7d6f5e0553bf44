// Calls one entry point after the other. Before each it writes what a listener must be told, "> event call",
// or
// "> nothing call", and after it "= result".
#include <cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "victim.hpp"

namespace {

void write_line(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(9);
}

template <typename Call>
CUresult step(const char* event, const char* name, Call&& call) {
  char line[128];
  std::snprintf(line, sizeof line, "> %s %s\n", event, name);
  write_line(line);
  const CUresult result = call();
  std::snprintf(line, sizeof line, "= %d\n", static_cast<int>(result));
  write_line(line);
  return result;
}
// The macros of cuda.h give a function its newest version, which is what its name becomes here, too.
#define NAME_OF(name) #name
#define STEP(event, name, ...) step(event, NAME_OF(name), [&] { return name(__VA_ARGS__); })

constexpr size_t kBytes = 10000;

void memory(CUstream stream) {
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  size_t pitch = 0;
  STEP("allocated", cuMemAlloc, &a, kBytes);
  STEP("freed", cuMemFree, a);
  STEP("allocated", cuMemAlloc, &a, kBytes);  // a hit
  STEP("submitted", cuMemsetD8Async, a, 1, kBytes, stream);
  STEP("freed", cuMemFree, a);
  STEP("failed", cuMemFree, a);                // twice
  STEP("failed", cuMemFree, a + 256);          // inside
  STEP("failed", cuMemFree, CUdeviceptr{16});  // unknown
  STEP("failed", cuMemAlloc, &a, 0);
  STEP("failed", cuMemAlloc, nullptr, 16);
  STEP("failed", cuMemAlloc, &a, size_t{1} << 50);
  STEP("allocated", cuMemAllocPitch, &a, &pitch, 100, 100, 4);
  STEP("freed", cuMemFreeAsync, a, stream);
  STEP("failed", cuMemAllocPitch, &a, &pitch, 100, 100, 3);  // forwarded, refused
  STEP("allocated", cuMemAllocManaged, &a, kBytes, CU_MEM_ATTACH_GLOBAL);
  STEP("freed", cuMemFree, a);
  STEP("failed", cuMemAllocManaged, &a, kBytes, 77);
  STEP("allocated", cuMemAllocAsync, &a, kBytes, stream);
  STEP("freed", cuMemFreeAsync, a, stream);
  STEP("allocated", cuMemAllocAsync, &a, kBytes, stream);
  STEP("waited", cuStreamSynchronize, stream);
  STEP("freed", cuMemFree, a);  // the driver's, by the other door
  STEP("failed", cuMemFreeAsync, CUdeviceptr{16}, stream);
  STEP("allocated", cuMemAlloc, &a, kBytes);
  STEP("allocated", cuMemAlloc, &b, kBytes);
  STEP("submitted", cuMemcpyDtoD, b, a, kBytes);
  STEP("submitted", cuMemcpyDtoDAsync, b, a, kBytes, stream);
  STEP("submitted", cuMemcpyDtoDAsync, b, a, 100 * kBytes, stream);  // refused: past the block's end
  STEP("freed", cuMemFree, b);
  STEP("submitted", cuMemsetD8Async, b, 1, kBytes, stream);  // refused: freed
  STEP("freed", cuMemFreeAsync, a, stream);
  STEP("failed", cuMemFreeAsync, a, stream);
}

void others(CUstream stream, CUfunction kernel) {
  CUevent event = nullptr;
  CUstream another = nullptr;
  CUcontext context = nullptr;
  void* host = nullptr;
  size_t free = 0;
  size_t total = 0;
  STEP("forwarded", cuEventCreate, &event, 0);
  STEP("submitted", cuEventRecord, event, stream);
  STEP("submitted", cuStreamWaitEvent, stream, event, 0);
  STEP("waited", cuEventSynchronize, event);
  STEP("forwarded", cuEventQuery, event);
  STEP("forwarded", cuStreamQuery, stream);
  STEP("waited", cuCtxSynchronize);
  STEP("forwarded", cuStreamCreate, &another, 0);
  STEP("forwarded", cuStreamDestroy, another);
  STEP("forwarded", cuMemGetInfo, &free, &total);
  STEP("allocated", cuMemHostAlloc, &host, kBytes, 0);
  STEP("freed", cuMemFreeHost, host);
  STEP("nothing", cuCtxGetCurrent, &context);
  STEP("forwarded", cuCtxSetCurrent, context);
  unsigned long long ns = 0;
  void* arguments[] = {&ns};
  STEP("submitted", cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

// Memory while a stream captures: the driver serves, and so may refuse.
void captures(CUstream stream) {
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  CUgraph graph = nullptr;
  STEP("allocated", cuMemAlloc, &b, kBytes);
  STEP("forwarded", cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  STEP("allocated", cuMemAlloc, &a, kBytes);
  STEP("freed", cuMemFree, a);
  STEP("freed", cuMemFree, b);
  STEP("forwarded", cuStreamEndCapture, stream, &graph);
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  cuInit(0);
  cuDeviceGet(&device, 0);
  STEP("forwarded", cuDevicePrimaryCtxRetain, &context, device);
  STEP("forwarded", cuCtxSetCurrent, context);
  STEP("forwarded", cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  STEP("forwarded", cuModuleLoadData, &module, victim::kKernels);
  STEP("forwarded", cuModuleGetFunction, &kernel, module, "spin");
  memory(stream);
  others(stream, kernel);
  captures(stream);
  STEP("waited", cuCtxSynchronize);
  std::puts("done");
  return 0;
}
